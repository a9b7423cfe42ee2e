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
  message->set_max_queued_programs(limits.max_queued_programs);
  message->set_max_streams(limits.max_streams);
  message->set_window_batches(limits.window_batches);
  message->set_window_bytes(limits.window_bytes);
  message->set_idempotency_entries(limits.idempotency_entries);
  message->set_max_program_ms(absl::ToInt64Milliseconds(limits.max_program_time));
}

void FillLists(const Config& config, v1::ServerConfig* message) {
  for (const ListenerConfig& listener : config.listeners) {
    v1::Listener* out = message->add_listeners();
    out->set_address(listener.address);
    out->set_tenant(listener.tenant);
    if (listener.address.starts_with("unix:")) out->set_unix_mode(listener.unix_mode);
  }
  for (const DeviceConfig& device : config.devices) {
    v1::DeviceConfig* out = message->add_devices();
    out->set_name(device.name);
    out->set_memory_bytes(device.memory_bytes);
    out->set_threads(device.threads);
    for (const std::string& kernel : device.disabled_kernels) out->add_disabled_kernels(kernel);
    out->set_tuning_table(device.tuning_table);
    out->set_skip_self_test(!device.self_test);
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
  v1::DrainConfig* drain = message->mutable_drain();
  drain->set_notice_ms(absl::ToInt64Milliseconds(config.drain.notice));
  drain->set_limit_ms(absl::ToInt64Milliseconds(config.drain.limit));
  message->mutable_share()->set_disabled(config.share.disabled);
  message->mutable_share()->set_socket_path(config.share.socket_path);
  message->mutable_metrics()->set_address(config.metrics_address);
  v1::LogConfig* log = message->mutable_log();
  log->set_format(config.log.format == LogFormat::kJson ? v1::LogConfig::FORMAT_JSON
                                                        : v1::LogConfig::FORMAT_TEXT);
  log->set_level(Level(config.log.level));
  log->set_sample_calls(config.log.sample_calls);
}

}  // namespace

std::string PrintConfig(const Config& config) {
  v1::ServerConfig message;
  FillLists(config, &message);
  FillSettings(config, &message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

}  // namespace gemmd::server
