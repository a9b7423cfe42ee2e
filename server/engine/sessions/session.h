// Session: a client's claim on buffers and plans. It ends when closed, when its ttl passes without
// a call, or when the stream that holds it is cut and the grace period passes; then what it holds
// is freed as soon as its work has finished.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/sessions/buffer.h"
#include "server/engine/sessions/handle.h"
#include "server/engine/sessions/plan.h"
#include "server/engine/sessions/published_claim.h"
#include "server/engine/sessions/recent_bindings.h"
#include "server/engine/sessions/recent_programs.h"
#include "server/engine/sessions/replay.h"
#include "server/engine/sessions/session_use.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

class ArmedRegion;

struct SessionOptions {
  absl::Duration ttl;
  absl::Duration grace;
  std::string label;
  std::string peer;
  Device* device = nullptr;
};

enum class EndCause { kClosed, kExpired, kCut, kDrained, kEvicted };
std::string_view Name(EndCause cause);  // "closed", "expired", "cut", "drained", "evicted"

// Thread-safe. Shared by the store and by calls under way.
class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Holder {
    absl::AnyInvocable<void()> ended;     // the session has ended
    absl::AnyInvocable<void()> replaced;  // another stream holds it now
  };

  Session(uint64_t key, const Handle& handle, Tenant& tenant, SessionOptions options, Charge charge,
          absl::Time now);

  uint64_t key() const { return key_; }  // dense, never reused
  const Handle& handle() const { return handle_; }
  const std::string& name() const { return name_; }  // "s-17"
  Tenant& tenant() const { return tenant_; }
  const SessionOptions& options() const { return options_; }
  ReplayCache& replays() { return replays_; }
  RecentPrograms& programs() { return programs_; }

  // Claims the session for a call and moves its expiry. NOT_FOUND once it has ended.
  absl::StatusOr<SessionUse> Use(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Use and ProgramAccepted at once, for a ring. It keeps the session alive as a call does, but not
  // one whose client's stream was cut: that client is dead, mostly, and what it rang last must not
  // outlive the grace period.
  absl::StatusOr<SessionUse> UseForRing(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Time expiry() const ABSL_LOCKS_EXCLUDED(mutex_);  // InfiniteFuture while held

  // Ties the session to a stream; whoever held it is told `replaced`. Returns a ticket for Unhold.
  absl::StatusOr<int64_t> Hold(Holder holder) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream is gone: the grace period begins. Nothing happens if another stream has taken over.
  void Unhold(int64_t ticket, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // See SessionStore.
  void MoveTimes(absl::Duration by) ABSL_LOCKS_EXCLUDED(mutex_);

  // What ends the session when its expiry passes: kCut after a stream that held it was cut, else
  // kExpired.
  EndCause ExpiryCause() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A found buffer's handle counts as a buffer of the tenant: handles too must be bounded.
  // `claim`, of a found one, lives as long as the handle.
  absl::StatusOr<Handle> AddBuffer(BufferRef ref, PublishedClaim claim = {})
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The claim of a handle whose buffer was published; let go at once if the handle has gone.
  void KeepClaim(const Handle& handle, PublishedClaim claim) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<BufferRef> FindBuffer(const Handle& handle) const ABSL_LOCKS_EXCLUDED(mutex_);
  struct FoundBuffers {
    std::vector<BufferRef> refs;  // in order, up to the first that is not there
    absl::Status status;          // NOT_FOUND then
    int64_t deletions = 0;        // for RememberBinding
  };
  FoundBuffers FindBuffers(absl::Span<const Handle* const> handles) ABSL_LOCKS_EXCLUDED(mutex_);
  // All or none. Returns the bytes that no other handle keeps. Imported device memory keeps
  // `until_unmapped` for as long as it is mapped here: its owner must not free it before.
  absl::StatusOr<int64_t> DeleteBuffers(absl::Span<const Handle> handles,
                                        std::shared_ptr<void> until_unmapped = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  struct NamedBuffer {
    Handle handle;
    BufferRef ref;
  };
  std::vector<NamedBuffer> Buffers() const ABSL_LOCKS_EXCLUDED(mutex_);  // oldest first

  absl::StatusOr<Handle> AddPlan(std::shared_ptr<const Plan> plan) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::shared_ptr<const Plan>> FindPlan(const Handle& handle) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status DeletePlan(const Handle& handle) ABSL_LOCKS_EXCLUDED(mutex_);

  // What the plan was bound to by these changes before, if the session still has all of it under
  // the same handles; else null.
  std::shared_ptr<const BoundBuffers> FindBinding(const std::shared_ptr<const Plan>& plan,
                                                  absl::Span<const Rebinding> rebind)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of buffers that FindBuffers gave; nothing happens if one may have been deleted since.
  void RememberBinding(RecentBindings::Entry entry, const FoundBuffers& found)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Its armed plans; null before there are any. SetArmed: NOT_FOUND once it has ended,
  // FAILED_PRECONDITION when another call has set it meanwhile.
  std::shared_ptr<ArmedRegion> armed() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status SetArmed(std::shared_ptr<ArmedRegion> region) ABSL_LOCKS_EXCLUDED(mutex_);

  // Programs accepted and not yet answered, and the device time that answered ones took.
  void ProgramAccepted() ABSL_LOCKS_EXCLUDED(mutex_);
  void ProgramAnswered(double device_seconds) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Stats {
    absl::Time created;
    absl::Time expiry;
    bool held = false;
    int64_t buffers = 0;
    int64_t buffer_bytes = 0;
    int64_t plans = 0;
    int64_t queued_programs = 0;
    double device_seconds = 0;
  };
  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

  struct Freed {
    int64_t buffers = 0;
    int64_t bytes = 0;
  };
  // Ends the session: no new use from now on. `freed` runs once the last use is gone and everything
  // is freed, perhaps before this returns. False when it had ended already, and then `freed` never
  // runs.
  bool End(absl::AnyInvocable<void(Freed) &&> freed) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class SessionUse;
  void ReleaseUse() ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeAll() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Gone() const;

  struct BufferEntry {
    BufferRef ref;
    uint64_t order = 0;
    Charge charge;              // of a found buffer's handle
    PublishedClaim claim = {};  // of a published one
    bool bound = false;         // a plan was bound to it: it may stand in recent_
  };

  const uint64_t key_;
  const Handle handle_;
  const std::string name_;
  Tenant& tenant_;
  const SessionOptions options_;
  const absl::Time created_;
  ReplayCache replays_;
  RecentPrograms programs_;

  mutable absl::Mutex mutex_;
  Charge charge_ ABSL_GUARDED_BY(mutex_);
  absl::Time expiry_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hold_ticket_ ABSL_GUARDED_BY(mutex_) = 0;  // counts up; the current holder has this one
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  Holder holder_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_order_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Handle, BufferEntry> buffers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Handle, std::shared_ptr<const Plan>> plans_ ABSL_GUARDED_BY(mutex_);
  RecentBindings recent_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ArmedRegion> armed_ ABSL_GUARDED_BY(mutex_);  // shared: see there
  int64_t deletions_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that took buffers or plans away
  int64_t queued_programs_ ABSL_GUARDED_BY(mutex_) = 0;
  double device_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::AnyInvocable<void(Freed) &&> freed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
