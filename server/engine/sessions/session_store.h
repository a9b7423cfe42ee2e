// SessionStore: the sessions that live, by handle, and their end.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/observe/log.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/sessions/session.h"

namespace gemmd::server {

// Thread-safe.
class SessionStore {
 public:
  // Called as a session ends, so that its queued work is dropped, and again when its last use is
  // gone.
  using OnEnd = absl::AnyInvocable<void(Session&, EndCause)>;
  SessionStore(const SessionConfig& config, const Clock& clock, Metrics& metrics, Log& log,
               OnEnd on_end);
  ~SessionStore();

  struct OpenOptions {
    std::optional<absl::Duration> ttl;    // nothing: the config's default
    std::optional<absl::Duration> grace;  // nothing: the config's default, at most the ttl
    std::string label;
    std::string peer;
    Device* device = nullptr;
  };
  // INVALID_ARGUMENT for a ttl, grace or label out of bounds, RESOURCE_EXHAUSTED at the tenant's
  // limit.
  absl::StatusOr<std::shared_ptr<Session>> Open(Tenant& tenant, OpenOptions options);

  // Claims a session for a call. NOT_FOUND for what does not exist, has ended, or belongs to
  // another tenant: all alike.
  absl::StatusOr<SessionUse> Use(const Tenant& tenant, std::string_view session_id);

  using Freed = absl::AnyInvocable<void(Session::Freed) &&>;
  // Ends it; `freed` runs when its work has finished and its memory is free. False when it had
  // ended already.
  bool End(Session& session, EndCause cause, Freed freed = nullptr);
  void EndAll(EndCause cause);
  // Ends what has expired. The server's reaper calls it.
  void Reap();
  // The machine's clock was set: what was to expire in a while still does in that while.
  void MoveTimes(absl::Duration by);

  // Oldest first; of every tenant for null.
  std::vector<std::shared_ptr<Session>> List(const Tenant* tenant) const;
  // By the name that List's show, whose ever it is; null when there is none.
  std::shared_ptr<Session> FindByName(std::string_view name) const;
  int64_t size() const;
  void Reconfigure(const SessionConfig& config);

 private:
  std::vector<std::shared_ptr<Session>> Snapshot() const;

  const Clock& clock_;
  Metrics& metrics_;
  Log& log_;
  OnEnd on_end_;
  mutable absl::Mutex mutex_;
  SessionConfig config_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_key_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<Handle, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
