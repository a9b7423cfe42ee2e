#include "server/service/listen/listener.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/service/admin/health_service.h"
#include "server/service/listen/acceptor.h"
#include "server/service/listen/authenticate.h"
#include "server/service/listen/tls.h"
#include "server/service/services.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// A client that stops answering is noticed after about 15 s, so that a stopped or cut-off host
// cannot hold a session.
constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// TLS, and the client's SETTINGS, have to be there within this; gRPC's default is two minutes.
constexpr int kHandshakeTimeoutMs = 10'000;
// Clients may ping as often as this.
constexpr int kMinPingIntervalMs = 1'000;
// HTTP/2 frames and windows large enough for 1 MiB chunks; the default 16 KiB frames cost uploads a
// third of their rate.
constexpr int kMaxFrameBytes = 1 << 20;
constexpr int kStreamWindowBytes = 8 << 20;

// What a call to an RPC of gRPC's own services could tell, nobody has been asked for: at listeners
// that ask for credentials there is neither reflection nor channelz.
class WithoutIntrospection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

void SetArguments(grpc::ServerBuilder& builder, int message_bytes, int max_streams) {
  builder.SetMaxReceiveMessageSize(message_bytes)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, max_streams)
      .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes)
      .AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
}

}  // namespace

struct Listener::Services {
  Services(const ListenerConfig& config, ServerState& state, LiveCalls& live, Tenant& tenant,
           StreamRegistry& streams, std::unique_ptr<TlsFiles> files,
           std::unique_ptr<Acceptor> bound)
      : tls(std::move(files)),
        acceptor(std::move(bound)),
        authenticator(config, tenant, state.access(), *acceptor),
        context{state, live, streams, authenticator} {
    for (const auto make : {MakeSessionService, MakeBufferService, MakeComputeService,
                            MakeArmedService, MakeDeviceService, MakeAdminService}) {
      services.push_back(make(context));
    }
  }

  void Register(grpc::ServerBuilder& builder) {
    for (const auto& service : services) builder.RegisterService(service.get());
  }

  const std::unique_ptr<TlsFiles> tls;  // null without
  const std::unique_ptr<Acceptor> acceptor;
  const Authenticator authenticator;
  ServiceContext context;
  std::vector<std::unique_ptr<grpc::Service>> services;
  HealthService health;
  // Answers UNIMPLEMENTED: beside health a server needs something that makes it poll.
  grpc::CallbackGenericService nothing;
  std::unique_ptr<grpc::Server> server;  // first to go: no call reaches a service after it
};

void EnableListenerPlugins() {
  // Never released: the last gRPC object to go would otherwise wait up to 10 s for gRPC's backup
  // poller (1.51).
  grpc_init();
  grpc::EnableDefaultHealthCheckService(false);  // HealthService is
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const ListenerConfig& config,
                                                          const ListenerContext& context) {
  Tenant* tenant = context.state.tenants().Find(config.tenant);
  if (tenant == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("listener ", config.address, ": there is no tenant ", config.tenant));
  }
  std::unique_ptr<TlsFiles> tls;
  if (config.tls) {
    auto files = TlsFiles::Start(config);
    if (!files.ok()) {
      return absl::Status(files.status().code(), absl::StrCat("listener ", config.address, ": ",
                                                              files.status().message()));
    }
    tls = *std::move(files);
  }
  GEMMD_ASSIGN_OR_RETURN(auto acceptor,
                         Acceptor::Bind(config, context.connections, context.state.log()));
  std::unique_ptr<Listener> listener(new Listener());
  listener->services_ =
      std::make_unique<Services>(config, context.state, context.live, *tenant, context.streams,
                                 std::move(tls), std::move(acceptor));
  Services& services = *listener->services_;
  grpc::ServerBuilder builder;
  SetArguments(builder, static_cast<int>(tenant->limits().max_message_bytes),
               context.connections.limits().max_streams);
  if (config.credentials.any() || config.health_only) {
    builder.SetOption(std::make_unique<WithoutIntrospection>());
  }
  builder.RegisterService(&services.health);
  if (config.health_only) {
    builder.RegisterCallbackGenericService(&services.nothing);
  } else {
    builder.SetResourceQuota(context.quota);
    services.Register(builder);
  }
  services.acceptor->Register(
      builder, config.tls ? services.tls->Credentials() : grpc::InsecureServerCredentials());
  services.server = builder.BuildAndStart();
  if (services.server == nullptr) {
    return absl::UnavailableError(absl::StrCat("gRPC cannot serve ", config.address));
  }
  listener->config_address_ = config.address;
  if (config.tls) {
    for (const char* result : {"ok", "invalid"}) {
      context.state.metrics().CertificateLoads(config.address, result);
    }
  }
  listener->Watch();
  listener->SetServing(true);  // before anybody can ask
  services.acceptor->Start(*services.server);
  listener->address_ = services.acceptor->address();
  return listener;
}

Listener::~Listener() { Shutdown(absl::Now()); }

bool Listener::accepting() const { return services_->acceptor->accepting(); }

void Listener::Watch() {
  if (services_->tls == nullptr) return;
  TlsFiles& tls = *services_->tls;
  Log& log = services_->context.state.log();
  Metrics& metrics = services_->context.state.metrics();
  if (const auto loaded = tls.Poll()) {
    const LogField listener = {"listener", config_address_};
    const std::string expires =
        absl::FormatTime(absl::RFC3339_sec, tls.expiry(), absl::UTCTimeZone());
    metrics.CertificateLoads(config_address_, loaded->ok() ? "ok" : "invalid").Increment();
    if (loaded->ok()) {
      log.Info("certificate_loaded", {listener, {"expires", expires}});
    } else {
      log.Warning("certificate_invalid",
                  {listener,
                   {"message", absl::StrCat(loaded->message(),
                                            "; the one that was right before is shown until then")},
                   {"expires", expires}});
    }
  }
  metrics.CertificateExpiry(config_address_)
      .Set(absl::ToDoubleSeconds(tls.expiry() - absl::UnixEpoch()));
  const bool expired = tls.expiry() <= absl::Now();
  if (std::exchange(certificate_expired_, expired) == expired || !expired) return;
  log.Warning("certificate_expired",
              {{"listener", config_address_},
               {"message", ExpiredText(tls.certificate_file(), tls.expiry())}});
}

void Listener::SetServing(bool serving) {
  HealthService& health = services_->health;
  const ServerState& state = services_->context.state;
  const bool whole = serving && state.serving_devices() > 0;
  // The one for all services would also turn on the devices that do not serve.
  health.Set("", whole);
  health.Set("gemmd.v1", whole);
  for (const auto& device : state.devices()) {
    health.Set(device->name(), serving && !device->fenced());
  }
}

void Listener::Shutdown(absl::Time deadline) {
  if (services_ == nullptr || services_->server == nullptr) return;
  services_->acceptor->Stop();
  services_->server->Shutdown(absl::ToChronoTime(deadline));
  services_->server->Wait();
}

}  // namespace gemmd::server
