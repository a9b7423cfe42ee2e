// What a Session and everything made from it share.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/internal/connect/background.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/internal/connect/keeper.h"
#include "client/cpp/internal/transfers/inline_memory.h"
#include "client/cpp/internal/transfers/staging.h"
#include "client/cpp/session.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class Arming;

// A HOST_SHARED buffer through which a device's other buffers are filled and read by Copy ops. The
// mutex is held for a whole transfer: one at a time and device. Created by the first.
struct Staging {
  absl::Mutex mu;
  std::optional<StagingMemory> made ABSL_GUARDED_BY(mu);
  bool no_more ABSL_GUARDED_BY(mu) = false;  // a larger one was refused
};

// What the session is, as the daemon said when it was opened.
struct SessionFacts {
  Handle id;
  std::string name;
  std::string device;
  absl::Duration ttl;
  bool close_on_destruction = false;
};

// Thread-safe but for the making and ending of it, which Session does.
class SessionCore {
 public:
  SessionCore(std::shared_ptr<ClientCore> client, SessionFacts facts);
  ~SessionCore();

  // Of an object that holds no session.
  static const std::shared_ptr<SessionCore>& None();

  void StartKeeper(const SessionOptions& options);

  ClientCore& client() const { return *client_; }
  Connection& connection() const { return connection_; }
  const SessionFacts& facts() const { return facts_; }
  std::string id() const { return std::string(facts_.id.bytes()); }
  // In the session's name, by its connection.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(Request request, const CallOptions& options) const {
    request.set_session_id(id());
    return client::Ask<Response>(*client_, options, *connection_.channel(), request);
  }
  Reaper& reaper() const { return *reaper_; }
  BackgroundErrors& errors() const { return *errors_; }

  // A second time FAILED_PRECONDITION.
  absl::StatusOr<SessionClosed> Close(const CallOptions& options);
  void Release();
  // The Session object goes: closes, waiting 10 s at most, unless it was attached, released or
  // closed before; then it only sees to it that dropped buffers are deleted.
  void End();

  Staging& StagingFor(const std::string& device);
  InlineMemory& inline_memory() const { return *inline_memory_; }
  Arming& arming() const { return *arming_; }

 private:
  const std::shared_ptr<ClientCore> client_;  // shared with the client and other sessions
  Connection& connection_;                    // client_'s
  SessionFacts facts_;
  const std::shared_ptr<BackgroundErrors> errors_;  // shared with the reaper
  const std::unique_ptr<Reaper> reaper_;
  std::unique_ptr<Keeper> keeper_;
  const std::unique_ptr<InlineMemory> inline_memory_;
  const std::unique_ptr<Arming> arming_;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<std::string, std::unique_ptr<Staging>> staging_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd::client
