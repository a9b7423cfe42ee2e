#include "server/service/listener.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "prometheus/gauge.h"
#include "server/service/admin_service.h"
#include "server/service/authenticate.h"
#include "server/service/buffer_service.h"
#include "server/service/compute_service.h"
#include "server/service/device_service.h"
#include "server/service/session_service.h"
#include "server/service/tls.h"
#include "server/service/unix_acceptor.h"

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
// How late a rotated certificate's expiry is shown.
constexpr absl::Duration kLookAtCertificate = absl::Seconds(10);

// What a call to an RPC of gRPC's own services could tell, nobody has been asked for: at listeners
// that ask for credentials there is neither reflection nor channelz.
class WithoutIntrospection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

void SetArguments(grpc::ServerBuilder& builder, int message_bytes) {
  builder.SetMaxReceiveMessageSize(message_bytes)
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes)
      .AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
}

// Nothing for an address that is not a Unix socket's.
std::optional<UnixListenerOptions> UnixOptions(const ListenerConfig& config) {
  absl::string_view name = config.address;
  UnixListenerOptions options{.mode = static_cast<mode_t>(config.unix_mode),
                              .field = absl::StrCat("listener ", config.address)};
  if (absl::ConsumePrefix(&name, "unix:")) {
    options.path = std::string(name);
    return options;
  }
  if (absl::ConsumePrefix(&name, "unix-abstract:")) {
    options.abstract_name = std::string(name);
    return options;
  }
  return std::nullopt;
}

}  // namespace

struct Listener::Services {
  Services(const ListenerConfig& config, ServerState& state, LiveCalls& live, Tenant& tenant,
           StreamRegistry& streams, std::unique_ptr<UnixAcceptor> unix_acceptor)
      : acceptor(std::move(unix_acceptor)),
        authenticator(config, tenant, state.access(), acceptor.get()),
        context{state, live, authenticator},
        sessions(context, streams),
        buffers(context),
        compute(context, streams),
        devices(context),
        admin(context, streams) {}

  void Register(grpc::ServerBuilder& builder) {
    builder.RegisterService(&sessions.wire())
        .RegisterService(&buffers.wire())
        .RegisterService(&compute.wire())
        .RegisterService(&devices.wire())
        .RegisterService(&admin.wire());
  }

  const std::unique_ptr<UnixAcceptor> acceptor;  // null for TCP
  const Authenticator authenticator;
  ServiceContext context;
  SessionService sessions;
  BufferService buffers;
  ComputeService compute;
  DeviceService devices;
  AdminService admin;
  // Answers UNIMPLEMENTED: beside health a server needs something that makes it poll.
  grpc::CallbackGenericService nothing;
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
  std::unique_ptr<UnixAcceptor> acceptor;
  if (const auto options = UnixOptions(config)) {
    auto bound = UnixAcceptor::Bind(*options, state.log());
    if (!bound.ok()) return bound.status();
    acceptor = *std::move(bound);
  }
  if (config.tls) {
    if (absl::Status files = CheckTlsFiles(*config.tls); !files.ok()) {
      return absl::Status(files.code(),
                          absl::StrCat("listener ", config.address, ": ", files.message()));
    }
  }
  std::unique_ptr<Listener> listener(new Listener());
  listener->services_ =
      std::make_unique<Services>(config, state, live, *tenant, streams, std::move(acceptor));
  Services& services = *listener->services_;
  grpc::ServerBuilder builder;
  SetArguments(builder, static_cast<int>(tenant->limits().max_message_bytes));
  if (config.credentials.any() || config.health_only) {
    builder.SetOption(std::make_unique<WithoutIntrospection>());
  }
  if (config.health_only) {
    builder.RegisterCallbackGenericService(&services.nothing);
  } else {
    services.Register(builder);
  }
  int port = 0;
  if (services.acceptor == nullptr) {
    builder.AddListeningPort(
        config.address, config.tls ? MakeTlsCredentials(config) : grpc::InsecureServerCredentials(),
        &port);
  }
  services.server = builder.BuildAndStart();
  if (services.server == nullptr || (services.acceptor == nullptr && port == 0)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", config.address,
                                               "; is the address in use or not this host's?"));
  }
  listener->config_address_ = config.address;
  if (config.tls) listener->certificate_file_ = config.tls->certificate_file;
  listener->Watch();
  if (services.acceptor != nullptr) {
    services.acceptor->Start(*services.server);
    listener->address_ = services.acceptor->address();
  } else {
    listener->address_ =
        absl::StrCat(config.address.substr(0, config.address.rfind(':')), ":", port);
  }
  return listener;
}

Listener::~Listener() { Shutdown(absl::Now()); }

void Listener::Watch() {
  if (certificate_file_.empty()) return;
  const absl::Time now = absl::Now();
  if (now < next_look_) return;
  next_look_ = now + kLookAtCertificate;
  const auto expiry = CertificateExpiry(certificate_file_);
  // 0, long past, for a file that cannot be read now: the alert for expiry fires for it too.
  services_->context.state.metrics()
      .CertificateExpiry(config_address_)
      .Set(expiry.ok() ? absl::ToDoubleSeconds(*expiry - absl::UnixEpoch()) : 0);
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
  if (services_->acceptor != nullptr) services_->acceptor->Stop();
  services_->server->Shutdown(absl::ToChronoTime(deadline));
  services_->server->Wait();
}

}  // namespace gemmd::server
