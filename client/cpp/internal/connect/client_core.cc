#include "client/cpp/internal/connect/client_core.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/connect/forked.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/internal/connect/target.h"
#include "gemmd/v1/device_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// gRPC 1.51 shuts down with its last object, and then waits up to 10 s for a poller that a large
// write has started: a tool would hang at its end. A reference that is never given back prevents
// it.
void KeepGrpc() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

constexpr char kNobody[] = "unix-abstract:gemmd-none";

bool IsHeader(const std::string& value) {
  const grpc_slice slice = grpc_slice_from_static_buffer(value.data(), value.size());
  return grpc_header_nonbin_value_is_legal(slice) != 0;
}

// A call that was made once on a channel of its own.
struct KeptCallbackQueue {
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(kNobody, grpc::InsecureChannelCredentials());
  grpc::GenericStub stub{channel};
  grpc::ClientContext context;
  grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1};
  grpc::ByteBuffer response;
};

}  // namespace

void KeepCallbackQueue() {
  // Used: a pointer that the compiler drops is a leak to a caller's leak checker.
  [[gnu::used]] static const KeptCallbackQueue* kept = [] {
    auto* made = new KeptCallbackQueue;
    made->stub.UnaryCall(&made->context, "/gemmd/none", grpc::StubOptions(), &made->request,
                         &made->response, [](grpc::Status) {});
    return made;
  }();
}

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& target, const ClientOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_receive_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_send_bytes));
  // Channels with equal arguments would otherwise share one connection, and head-of-line waits.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The default waits 1 s before it connects again, in which every retry would fail at once.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The environment's proxy would have what was meant to stay on this host.
  if (ReachOf(target) != Reach::kNetwork) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.tls && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  return grpc::CreateCustomChannel(target.empty() ? kNobody : target, credentials, arguments);
}

}  // namespace

Connection::Connection(const std::string& target, const ClientOptions& options,
                       std::shared_ptr<grpc::ChannelCredentials> credentials)
    : target_(target),
      options_(options),
      credentials_(std::move(credentials)),
      channel_(MakeChannel(target_, options_, credentials_)) {}

std::shared_ptr<grpc::Channel> Connection::bulk() {
  absl::MutexLock lock(&mu_);
  if (bulk_ == nullptr) bulk_ = MakeChannel(target_, options_, credentials_);
  return bulk_;
}

void Connection::ResetBulk() {
  std::shared_ptr<grpc::Channel> dropped;
  absl::MutexLock lock(&mu_);
  dropped.swap(bulk_);
}

ClientCore::ClientCore(std::string target, const ClientOptions& options, Security security)
    : target_(std::move(target)),
      options_(options),
      security_(std::move(security)),
      share_(std::string()) {
  WatchForks();
  KeepGrpc();
  for (int i = 0; i < options_.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>(target_, options_, security_.credentials));
  }
}

const std::shared_ptr<ClientCore>& ClientCore::None() {
  static const auto& none = *new auto(MakeUnlessForked<ClientCore>(
      std::string(), ClientOptions(), Security{grpc::InsecureChannelCredentials(), nullptr}));
  return none;
}

absl::Status ClientCore::Usable(const CallOptions& options) const {
  if (!IsHeader(options.traceparent)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "traceparent '", absl::CHexEscape(options.traceparent),
        "' has characters that no header takes; write it as W3C's trace context does"));
  }
  if (!target_.empty()) return CheckForked();
  return absl::FailedPreconditionError(
      "this object holds nothing to call by: it was never set, or it was moved from");
}

Connection& ClientCore::Next() {
  return *connections_[next_.fetch_add(1, std::memory_order_relaxed) % connections_.size()];
}

absl::Time ClientCore::DeadlineOf(const CallOptions& call) const {
  const absl::Duration timeout =
      call.timeout > absl::ZeroDuration() ? call.timeout : options_.default_timeout;
  return timeout > absl::ZeroDuration() ? absl::Now() + timeout : absl::InfiniteFuture();
}

void ClientCore::ReportBackground(absl::string_view what, const absl::Status& status) const {
  if (options_.on_background_error) options_.on_background_error(what, status);
}

absl::StatusOr<std::string> ClientCore::ShareSocket(absl::Duration timeout) {
  GEMMD_RETURN_IF_ERROR(Usable());
  {
    absl::MutexLock lock(&share_mu_);
    if (share_known_) return share_;
  }
  absl::StatusOr<std::string> found = AskShareSocket(timeout);
  // A daemon that could not be asked may be there next time; its answer stays.
  if (absl::IsDeadlineExceeded(found.status())) return found;
  if (absl::IsAborted(found.status())) return absl::UnavailableError(found.status().message());
  absl::MutexLock lock(&share_mu_);
  share_known_ = true;
  share_ = found;
  return found;
}

absl::StatusOr<std::string> ClientCore::AskShareSocket(absl::Duration timeout) {
  if (!options_.shared_memory) {
    return absl::FailedPreconditionError("shared memory is off (ClientOptions.shared_memory)");
  }
  const absl::StatusOr<v1::ServerInfo> info =
      Ask<v1::ServerInfo>(v1::GetServerInfoRequest(), {.timeout = timeout});
  if (absl::IsDeadlineExceeded(info.status())) return info.status();
  if (!info.ok()) return absl::AbortedError(info.status().message());
  if (info->share_socket().empty()) {
    return absl::FailedPreconditionError("the server offers no shared memory");
  }
  GEMMD_RETURN_IF_ERROR(ProbeShareSocket(info->share_socket()));
  return info->share_socket();
}

}  // namespace gemmd::client
