#include "gemmd/v1/config.pb.h"
#include "google/protobuf/text_format.h"
#include "server/config/load.h"

namespace gemmd::server {
namespace {

void Fill(const Limits& limits, v1::LimitsConfig* message) {
  message->set_max_ops(limits.max_ops);
  message->set_max_inline_bytes(limits.max_inline_bytes);
  message->set_max_sessions(limits.max_sessions);
  message->set_max_buffers(limits.max_buffers);
  message->set_max_buffer_bytes(limits.max_buffer_bytes);
  message->set_max_plans(limits.max_plans);
  message->set_max_armed(limits.max_armed);
  message->set_max_queued_programs(limits.max_queued_programs);
  message->set_max_streams(limits.max_streams);
  message->set_window_batches(limits.window_batches);
  message->set_window_bytes(limits.window_bytes);
  message->set_idempotency_entries(limits.idempotency_entries);
  message->set_max_program_ms(absl::ToInt64Milliseconds(limits.max_program_time));
  if (limits.max_queued_device_time != absl::InfiniteDuration()) {
    message->set_max_queued_device_ms(absl::ToInt64Milliseconds(limits.max_queued_device_time));
  }
  message->set_max_upload_bytes_per_second(limits.max_upload_bytes_per_second);
  message->set_max_host_bytes(limits.max_host_bytes);
}

v1::Role ToProto(Role role) {
  switch (role) {
    case Role::kUser:
      return v1::ROLE_USER;
    case Role::kObserver:
      return v1::ROLE_OBSERVER;
    case Role::kAdmin:
      return v1::ROLE_ADMIN;
  }
  return v1::ROLE_USER;
}

void Fill(const ListenerConfig& listener, v1::Listener* message) {
  message->set_address(listener.address);
  message->set_tenant(listener.tenant);
  if (listener.address.starts_with("unix:")) message->set_unix_mode(listener.unix_mode);
  if (listener.tls) {
    v1::TlsConfig* tls = message->mutable_tls();
    tls->set_certificate_file(listener.tls->certificate_file);
    tls->set_key_file(listener.tls->key_file);
    tls->set_client_ca_file(listener.tls->client_ca_file);
    tls->set_watch_ms(absl::ToInt64Milliseconds(listener.tls->watch));
  }
  if (listener.credentials.certificate) message->add_credentials(v1::CREDENTIAL_CERTIFICATE);
  if (listener.credentials.token) message->add_credentials(v1::CREDENTIAL_TOKEN);
  if (listener.credentials.unix_peer) message->add_credentials(v1::CREDENTIAL_UNIX_PEER);
  message->set_role(ToProto(listener.role));
  message->set_plaintext_beyond_loopback(listener.plaintext_beyond_loopback);
  message->set_health_only(listener.health_only);
}

void Fill(const AuthConfig& auth, v1::AuthConfig* message) {
  message->set_token_file(auth.token_file);
  for (const PrincipalConfig& rule : auth.certificates) {
    v1::CertificatePrincipal* out = message->add_certificates();
    out->set_name(rule.name);
    out->set_tenant(rule.tenant);
    out->set_role(ToProto(rule.role));
  }
  for (const PrincipalConfig& rule : auth.unix_peers) {
    v1::UnixPrincipal* out = message->add_unix_peers();
    out->set_uid(rule.uid);
    out->set_tenant(rule.tenant);
    out->set_role(ToProto(rule.role));
  }
}

void FillLists(const Config& config, v1::ServerConfig* message) {
  for (const ListenerConfig& listener : config.listeners) {
    Fill(listener, message->add_listeners());
  }
  for (const DeviceConfig& device : config.devices) {
    v1::DeviceConfig* out = message->add_devices();
    out->set_name(device.name);
    out->set_memory_bytes(device.memory_bytes);
    out->set_threads(device.threads);
    for (const std::string& kernel : device.disabled_kernels) out->add_disabled_kernels(kernel);
    out->set_tuning_table(device.tuning_table);
    out->set_tuning_file(device.tuning_file);
    out->set_skip_self_test(!device.self_test);
    out->set_no_numa_binding(!device.numa_binding);
  }
  for (const TenantConfig& tenant : config.tenants) {
    v1::Tenant* out = message->add_tenants();
    out->set_name(tenant.name);
    out->set_weight(tenant.weight);
    Fill(tenant.limits, out->mutable_limits());
    message->mutable_limits()->set_max_message_bytes(tenant.limits.max_message_bytes);
  }
}

v1::LogConfig::Level Level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return v1::LogConfig::LEVEL_DEBUG;
    case LogLevel::kInfo:
      return v1::LogConfig::LEVEL_INFO;
    case LogLevel::kWarning:
      return v1::LogConfig::LEVEL_WARNING;
    case LogLevel::kError:
      return v1::LogConfig::LEVEL_ERROR;
  }
  return v1::LogConfig::LEVEL_INFO;
}

void FillSettings(const Config& config, v1::ServerConfig* message) {
  v1::SessionConfig* session = message->mutable_session();
  session->set_default_ttl_ms(absl::ToInt64Milliseconds(config.session.default_ttl));
  session->set_min_ttl_ms(absl::ToInt64Milliseconds(config.session.min_ttl));
  session->set_max_ttl_ms(absl::ToInt64Milliseconds(config.session.max_ttl));
  session->set_default_grace_ms(absl::ToInt64Milliseconds(config.session.default_grace));
  v1::SchedulerConfig* scheduler = message->mutable_scheduler();
  scheduler->set_lookahead_us(absl::ToInt64Microseconds(config.scheduler.lookahead));
  scheduler->set_aging_ms(absl::ToInt64Milliseconds(config.scheduler.aging));
  scheduler->set_inline_below_us(absl::ToInt64Microseconds(config.scheduler.inline_below));
  if (config.scheduler.processor_wake.has_value()) {
    scheduler->set_processor_wake_us(
        static_cast<int32_t>(absl::ToInt64Microseconds(*config.scheduler.processor_wake)));
  }
  scheduler->set_busy_poll_us(
      static_cast<int32_t>(absl::ToInt64Microseconds(config.scheduler.busy_poll)));
  scheduler->set_armed_linger_us(
      static_cast<int32_t>(absl::ToInt64Microseconds(config.scheduler.armed_linger)));
  scheduler->set_armed_stream_linger_us(
      static_cast<int32_t>(absl::ToInt64Microseconds(config.scheduler.armed_stream_linger)));
  v1::DrainConfig* drain = message->mutable_drain();
  drain->set_notice_ms(absl::ToInt64Milliseconds(config.drain.notice));
  drain->set_limit_ms(absl::ToInt64Milliseconds(config.drain.limit));
  v1::ConnectionsConfig* connections = message->mutable_connections();
  connections->set_max(config.connections.max);
  connections->set_max_per_peer(config.connections.max_per_peer);
  connections->set_max_streams(config.connections.max_streams);
  connections->set_max_received_bytes(config.connections.max_received_bytes);
  message->mutable_tuning()->set_background(config.tuning.background);
  message->mutable_tuning()->set_max_share(config.tuning.max_share);
  message->mutable_share()->set_disabled(config.share.disabled);
  message->mutable_share()->set_socket_path(config.share.socket_path);
  message->mutable_metrics()->set_address(config.metrics_address);
  v1::LogConfig* log = message->mutable_log();
  log->set_format(config.log.format == LogFormat::kJson ? v1::LogConfig::FORMAT_JSON
                                                        : v1::LogConfig::FORMAT_TEXT);
  log->set_level(Level(config.log.level));
  log->set_sample_calls(config.log.sample_calls);
  if (config.tracing.otlp_endpoint.empty()) return;
  v1::TracingConfig* tracing = message->mutable_tracing();
  tracing->set_otlp_endpoint(config.tracing.otlp_endpoint);
  tracing->set_sample(config.tracing.sample);
  tracing->set_ca_file(config.tracing.ca_file);
  tracing->set_plaintext_beyond_loopback(config.tracing.plaintext_beyond_loopback);
}

}  // namespace

std::string PrintConfig(const Config& config) {
  v1::ServerConfig message;
  FillLists(config, &message);
  FillSettings(config, &message);
  Fill(config.auth, message.mutable_auth());
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

}  // namespace gemmd::server
