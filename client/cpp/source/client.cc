#include "client/cpp/client.h"

#include <google/protobuf/util/time_util.h>
#include <sys/un.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cpp/health.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/paged.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/internal/connect/connecting.h"
#include "client/cpp/internal/connect/forked.h"
#include "client/cpp/internal/connect/session_core.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

using google::protobuf::util::TimeUtil;

constexpr size_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;

bool IsPort(absl::string_view text) {
  int port = 0;
  return absl::SimpleAtoi(text, &port) && port > 0 && port < 65536;
}

// What gRPC would take for the name of a host and look for in vain, or whose port for another. By
// TLS the port is 443 where none is given.
absl::Status CheckTarget(absl::string_view target, bool secure) {
  constexpr absl::string_view kWanted = "write HOST:PORT, unix:/PATH or unix-abstract:NAME";
  if (target.empty()) return absl::InvalidArgumentError("the target is empty");
  const auto refused = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat("the target '", target, "' ", why...));
  };
  const size_t colon = target.find(':');
  if (colon != target.npos) {
    for (const absl::string_view scheme :
         {"unix", "unix-abstract", "dns", "ipv4", "ipv6", "vsock", "xds"}) {
      if (target.substr(0, colon) != scheme) continue;
      absl::string_view path = scheme == "unix" ? target.substr(colon + 1) : "";
      absl::ConsumePrefix(&path, "//");
      if (path.size() <= kMaxSocketPathBytes) return absl::OkStatus();
      return refused("has a path of ", path.size(), " bytes; that of a socket has ",
                     kMaxSocketPathBytes, " at most");
    }
  }
  if (absl::StartsWith(target, "/") || absl::StartsWith(target, "./")) {
    return refused("is a path; write unix:", target);
  }
  if (absl::StrContains(target, "://")) return refused("is an URL; ", kWanted);
  if (secure && colon == target.npos && !target.empty()) return absl::OkStatus();
  const size_t last = target.rfind(':');
  const bool bracketed = absl::StartsWith(target, "[");
  const bool one_port = last == colon || (bracketed && last > 0 && target[last - 1] == ']');
  if (last == target.npos || last == 0 || !one_port || !IsPort(target.substr(last + 1))) {
    return refused("has no port of 1 to 65535; ", kWanted, ", as 127.0.0.1:8470 or [::1]:8470");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(absl::string_view target, const ClientOptions& options) {
  constexpr int64_t kMostMessage = 1 << 30;  // gRPC's own limits are ints
  GEMMD_RETURN_IF_ERROR(CheckTarget(target, options.tls.has_value()));
  if (options.connections < 1 || options.connections > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections=", options.connections, " is not in [1, 64]"));
  }
  for (const int64_t bytes : {options.max_receive_bytes, options.max_send_bytes}) {
    if (bytes < 1 << 16 || bytes > kMostMessage) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a message limit of ", bytes, " bytes is not in [65536, ", kMostMessage, "]"));
    }
  }
  if (options.retry.max_attempts < 1 || options.retry.initial_backoff <= absl::ZeroDuration() ||
      options.retry.max_backoff < options.retry.initial_backoff) {
    return absl::InvalidArgumentError(
        "retry needs max_attempts >= 1 and 0 < initial_backoff <= max_backoff");
  }
  return absl::OkStatus();
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  return TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(duration));
}

absl::StatusOr<v1::ExplainResponse> SendExplain(ClientCore& core, v1::ExplainRequest& request,
                                                absl::string_view device,
                                                const CallOptions& options) {
  request.set_device(std::string(device));
  return core.Ask<v1::ExplainResponse>(request, options);
}

}  // namespace

Client::Client() = default;
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::Client(std::shared_ptr<ClientCore> core) : core_(std::move(core)) {}

absl::StatusOr<Client> Client::Connect(absl::string_view target, const ClientOptions& options) {
  GEMMD_RETURN_IF_ERROR(CheckForked());
  GEMMD_RETURN_IF_ERROR(CheckOptions(target, options));
  GEMMD_ASSIGN_OR_RETURN(Security security, MakeSecurity(target, options));
  auto core = MakeUnlessForked<ClientCore>(std::string(target), options, std::move(security));
  if (options.connect_timeout > absl::ZeroDuration()) GEMMD_RETURN_IF_ERROR(AwaitConnection(*core));
  return Client(std::move(core));
}

const std::string& Client::target() const { return core_->target(); }

absl::StatusOr<Session> Client::OpenSession(const SessionOptions& options) {
  v1::OpenSessionRequest request;
  request.set_label(options.label);
  request.set_device(options.device);
  if (options.ttl > absl::ZeroDuration()) *request.mutable_ttl() = ToProto(options.ttl);
  if (options.grace > absl::ZeroDuration()) *request.mutable_grace() = ToProto(options.grace);
  GEMMD_ASSIGN_OR_RETURN(const v1::OpenSessionResponse response,
                         core_->Ask<v1::OpenSessionResponse>(request, options.call));
  const absl::StatusOr<Handle> id = Handle::FromBytes(response.session_id());
  if (!id.ok()) {
    return absl::InternalError(absl::StrCat("the server's session: ", id.status().message()));
  }
  auto session = MakeUnlessForked<SessionCore>(
      core_, SessionFacts{.id = *id,
                          .name = response.name(),
                          .device = response.device(),
                          .ttl = absl::Nanoseconds(TimeUtil::DurationToNanoseconds(response.ttl())),
                          .close_on_destruction = true});
  session->StartKeeper(options);
  return Session(std::move(session));
}

absl::StatusOr<Session> Client::AttachSession(const Handle& id, const CallOptions& options) {
  Session session(
      MakeUnlessForked<SessionCore>(core_, SessionFacts{.id = id, .close_on_destruction = false}));
  GEMMD_RETURN_IF_ERROR(session.KeepAlive(options).status());
  return session;
}

absl::StatusOr<std::vector<v1::SessionInfo>> Client::ListSessions(const CallOptions& options) {
  return AllPages(*core_, options, v1::ListSessionsRequest(),
                  &v1::ListSessionsResponse::mutable_sessions);
}

absl::StatusOr<std::vector<v1::Buffer>> Client::ListPublished(const CallOptions& options) {
  return AllPages(*core_, options, v1::ListPublishedRequest(),
                  &v1::ListPublishedResponse::mutable_buffers);
}

absl::StatusOr<VersionSwitch> Client::SwitchVersion(absl::string_view name, int64_t version,
                                                    const CallOptions& options) {
  v1::SwitchVersionRequest request;
  request.set_name(std::string(name));
  request.set_version(version);
  GEMMD_ASSIGN_OR_RETURN(const v1::SwitchVersionResponse response,
                         core_->Ask<v1::SwitchVersionResponse>(request, options));
  return VersionSwitch{response.previous_version(), response.names()};
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo(const CallOptions& options) {
  return core_->Ask<v1::ServerInfo>(v1::GetServerInfoRequest(), options);
}

absl::StatusOr<std::vector<v1::Device>> Client::ListDevices(const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response,
                         core_->Ask<v1::ListDevicesResponse>(v1::ListDevicesRequest(), options));
  return std::vector<v1::Device>(response.devices().begin(), response.devices().end());
}

absl::StatusOr<std::vector<v1::Kernel>> Client::ListKernels(absl::string_view device,
                                                            const CallOptions& options) {
  v1::ListKernelsRequest request;
  request.set_device(std::string(device));
  GEMMD_ASSIGN_OR_RETURN(const v1::ListKernelsResponse response,
                         core_->Ask<v1::ListKernelsResponse>(request, options));
  return std::vector<v1::Kernel>(response.kernels().begin(), response.kernels().end());
}

absl::StatusOr<v1::ExplainResponse> Client::Explain(const v1::MatmulProblem& problem,
                                                    absl::string_view device,
                                                    const CallOptions& options) {
  v1::ExplainRequest request;
  *request.mutable_problem() = problem;
  return SendExplain(*core_, request, device, options);
}

absl::StatusOr<v1::ExplainResponse> Client::Explain(const v1::GroupedMatmulProblem& problem,
                                                    absl::string_view device,
                                                    const CallOptions& options) {
  v1::ExplainRequest request;
  *request.mutable_grouped() = problem;
  return SendExplain(*core_, request, device, options);
}

absl::StatusOr<v1::ExplainResponse> Client::Explain(const v1::KGroupedMatmulProblem& problem,
                                                    absl::string_view device,
                                                    const CallOptions& options) {
  v1::ExplainRequest request;
  *request.mutable_k_grouped() = problem;
  return SendExplain(*core_, request, device, options);
}

absl::StatusOr<Health> Client::CheckHealth(absl::string_view service, const CallOptions& options) {
  const grpc::ByteBuffer request = ToByteBuffer(EncodeHealthRequest(service));
  grpc::ByteBuffer response;
  const absl::Status status =
      Call(*core_, options, Again::kAfterBreak, [&](grpc::ClientContext& context) {
        return RawUnary<grpc::ByteBuffer, grpc::ByteBuffer>(
            *core_->First().channel(), kHealthMethod, context, request, response);
      });
  if (absl::IsNotFound(status)) return Health::kServiceUnknown;
  if (!status.ok()) return status;
  grpc::Slice bytes;
  if (!response.DumpToSingleSlice(&bytes).ok()) return Health::kUnknown;
  return DecodeHealthResponse(
      {reinterpret_cast<const char*>(bytes.begin()), static_cast<size_t>(bytes.size())});
}

bool Client::SharesHost() { return core_->ShareSocket().ok(); }

}  // namespace gemmd::client
