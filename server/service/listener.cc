#include "server/service/listener.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/service/buffer_service.h"
#include "server/service/compute_service.h"
#include "server/service/device_service.h"
#include "server/service/session_service.h"

namespace gemmd::server {
namespace {

// A client that stops answering is noticed after about 15 s, so that a stopped or cut-off host
// cannot hold a session.
constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// Clients may ping as often as this.
constexpr int kMinPingIntervalMs = 1'000;
// HTTP/2 frames and windows large enough for 1 MiB chunks; the default 16 KiB frames cost uploads a
// third of their rate.
constexpr int kMaxFrameBytes = 1 << 20;
constexpr int kStreamWindowBytes = 8 << 20;

// Removes a socket file that nobody listens on any more. A live one is left, and binding fails on
// it.
absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat("unix:", path, " is a file that is not a socket; give another path"));
  }
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::UnavailableError(absl::StrCat("unix:", path, " has ", path.size(),
                                               " bytes, limit ", sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::UnavailableError(absl::StrCat(
        "unix:", path, " is in use by a running server; stop it or give another path"));
  }
  if (errno == ECONNREFUSED) unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

struct Listener::Services {
  Services(ServerState& state, LiveCalls& live, Tenant& tenant, StreamRegistry& streams)
      : context{state, live, tenant},
        sessions(context, streams),
        buffers(context),
        compute(context, streams),
        devices(context) {}

  ServiceContext context;
  SessionService sessions;
  BufferService buffers;
  ComputeService compute;
  DeviceService devices;
  std::unique_ptr<grpc::Server> server;  // first to go: no call reaches a service after it
};

void EnableListenerPlugins() {
  // Never released: the last gRPC object to go would otherwise wait up to 10 s for gRPC's backup
  // poller (1.51).
  grpc_init();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const ListenerConfig& config,
                                                          ServerState& state, LiveCalls& live,
                                                          StreamRegistry& streams) {
  Tenant* tenant = state.tenants().Find(config.tenant);
  if (tenant == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("listener ", config.address, ": there is no tenant ", config.tenant));
  }
  absl::string_view path = config.address;
  const bool is_unix = absl::ConsumePrefix(&path, "unix:");
  if (is_unix) {
    if (absl::Status ready = RemoveStaleSocket(std::string(path)); !ready.ok()) return ready;
  }
  std::unique_ptr<Listener> listener(new Listener());
  listener->services_ = std::make_unique<Services>(state, live, *tenant, streams);
  Services& services = *listener->services_;
  const int message_bytes = static_cast<int>(tenant->limits().max_message_bytes);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(config.address, grpc::InsecureServerCredentials(), &port)
      .RegisterService(&services.sessions)
      .RegisterService(&services.buffers)
      .RegisterService(&services.compute)
      .RegisterService(&services.devices)
      .SetMaxReceiveMessageSize(message_bytes)
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes)
      .AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  services.server = builder.BuildAndStart();
  if (services.server == nullptr || (!is_unix && port == 0)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", config.address,
                                               "; is the address in use or not this host's?"));
  }
  listener->address_ = config.address;
  if (is_unix) {
    chmod(std::string(path).c_str(), static_cast<mode_t>(config.unix_mode));
  } else if (!absl::StartsWith(config.address, "unix-abstract:")) {
    listener->address_ =
        absl::StrCat(config.address.substr(0, config.address.rfind(':')), ":", port);
  }
  return listener;
}

Listener::~Listener() {
  Shutdown(absl::Now());
  absl::string_view path = address_;
  if (absl::ConsumePrefix(&path, "unix:")) unlink(std::string(path).c_str());
}

void Listener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = services_->server->GetHealthCheckService();
  const ServerState& state = services_->context.state;
  const bool whole = serving && state.serving_devices() > 0;
  // The one for all services would also turn on the devices that do not serve.
  health->SetServingStatus("", whole);
  health->SetServingStatus("gemmd.v1", whole);
  for (const auto& device : state.devices()) {
    health->SetServingStatus(device->name(), serving && !device->fenced());
  }
}

void Listener::Shutdown(absl::Time deadline) {
  if (services_ == nullptr || services_->server == nullptr) return;
  services_->server->Shutdown(absl::ToChronoTime(deadline));
  services_->server->Wait();
}

}  // namespace gemmd::server
