// A connection to a gemmd daemon.
//
//   absl::StatusOr<Client> client = Client::Connect("unix:/run/gemmd/gemmd.sock");
//   absl::StatusOr<Session> session = client->OpenSession({.label = "worker-3"});
//   absl::StatusOr<v1::ServerInfo> info = client->GetServerInfo();  //
//   "gemmd/v1/device_service.pb.h"
//
// Messages of gemmd/v1 that are only looked at come as they are on the wire; include their .pb.h to
// look inside. No call throws.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/errors.h"
#include "client/cpp/internal/connect/held.h"
#include "client/cpp/options.h"
#include "client/cpp/session.h"

namespace gemmd::v1 {
class Device;
class ExplainResponse;
class GroupedMatmulProblem;
class KGroupedMatmulProblem;
class Kernel;
class MatmulProblem;
class ServerInfo;
class SessionInfo;
class TraceChunk;
class TuneProgress;
class TuneRequest;
}  // namespace gemmd::v1

namespace gemmd::client {

class ClientCore;

// What grpc.health.v1 answers.
enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// "unknown", "serving", "not serving", "service unknown".
absl::string_view Name(Health health);

// What a daemon logs.
struct LogSettings {
  std::string level;         // "debug", "info", "warning", "error"
  int32_t sample_calls = 0;  // one in this many successful calls; 0: none
};

// A change of it: what is left out stays as it is.
struct LogChange {
  std::string level = {};
  std::optional<int32_t> sample_calls = std::nullopt;
};

// What switching a version found.
struct VersionSwitch {
  int64_t previous_version = 0;  // 0: none was current
  int64_t names = 0;             // of the version that is current now
};

// Move-only, thread-safe. Sessions keep what they need of it: it may be destroyed before them. One
// that is not connected, or was moved from, answers FAILED_PRECONDITION; so do all handles. A
// process that is forked from one that has connected cannot call at all (FAILED_PRECONDITION,
// FORKED), nor does it close what it inherits: fork first.
class Client {
 public:
  Client();  // not connected
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // `target`: "127.0.0.1:8470", "unix:/path", "unix-abstract:name". UNAVAILABLE when the daemon is
  // not there within options.connect_timeout, INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<Client> Connect(absl::string_view target,
                                        const ClientOptions& options = {});

  const std::string& target() const;

  absl::StatusOr<Session> OpenSession(const SessionOptions& options = {});
  // A session that exists, by its id: checked with a KeepAlive, NOT_FOUND once it has ended. Not
  // closed on destruction and not kept alive; device() and ttl() are not known.
  absl::StatusOr<Session> AttachSession(const Handle& id, const CallOptions& options = {});
  // The tenant's sessions, oldest first, without their ids.
  absl::StatusOr<std::vector<v1::SessionInfo>> ListSessions(const CallOptions& options = {});
  // What the tenant has published, by name; buffer_id is empty: Session::Find gives a handle.
  absl::StatusOr<std::vector<v1::Buffer>> ListPublished(const CallOptions& options = {});
  // "m/w" is "m@2/w" from now on, for all names of "m" at once. NOT_FOUND when nothing is published
  // as that version.
  absl::StatusOr<VersionSwitch> SwitchVersion(absl::string_view name, int64_t version,
                                              const CallOptions& options = {});

  absl::StatusOr<v1::ServerInfo> GetServerInfo(const CallOptions& options = {});
  absl::StatusOr<std::vector<v1::Device>> ListDevices(const CallOptions& options = {});
  // Of one device, or of all when `device` is empty.
  absl::StatusOr<std::vector<v1::Kernel>> ListKernels(absl::string_view device = "",
                                                      const CallOptions& options = {});
  // Every kernel that could serve the problem, best first, and why the rest cannot.
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::MatmulProblem& problem,
                                              absl::string_view device = "",
                                              const CallOptions& options = {});
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::GroupedMatmulProblem& problem,
                                              absl::string_view device = "",
                                              const CallOptions& options = {});
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::KGroupedMatmulProblem& problem,
                                              absl::string_view device = "",
                                              const CallOptions& options = {});
  // Of the daemon ("") or of one device ("cpu:0"). An unknown service is kServiceUnknown, not an
  // error.
  absl::StatusOr<Health> CheckHealth(absl::string_view service = "",
                                     const CallOptions& options = {});

  // For observers and admins, PERMISSION_DENIED for others; SetLog and EndSession for admins alone.
  absl::StatusOr<LogSettings> GetLog(const CallOptions& options = {});
  // Holds until the next SetLog, reload or start of the daemon.
  absl::StatusOr<LogSettings> SetLog(const LogChange& change, const CallOptions& options = {});
  // Ends a session of any tenant, by the name that ListSessions shows. NOT_FOUND.
  absl::Status EndSession(absl::string_view name, const CallOptions& options = {});
  // What happens on the devices, for `duration` from now on. `take` gets each message as it comes,
  // on this thread, and ends the trace by returning false.
  absl::Status Trace(absl::Duration duration, absl::FunctionRef<bool(const v1::TraceChunk&)> take,
                     const CallOptions& options = {});
  // For admins. Measures kernels on a device and lets the daemon choose by the times. `take` gets
  // each message as it comes, on this thread, and cancels by returning false: what was measured by
  // then is kept.
  absl::Status Tune(const v1::TuneRequest& request,
                    absl::FunctionRef<bool(const v1::TuneProgress&)> take,
                    const CallOptions& options = {});
  // For admins. What was measured on a device ("": the first that can be tuned), as text; and the
  // text of another one of its model, to be added. The notes of what was left out, if anything.
  absl::StatusOr<std::string> ExportTuning(absl::string_view device = "",
                                           const CallOptions& options = {});
  absl::StatusOr<std::string> ImportTuning(absl::string_view table, absl::string_view device = "",
                                           const CallOptions& options = {});

  // True when the daemon's share socket answers: bytes can go through shared memory.
  bool SharesHost();

 private:
  explicit Client(std::shared_ptr<ClientCore> core);

  Held<ClientCore> core_;  // shared with sessions
};

}  // namespace gemmd::client
