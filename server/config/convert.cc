#include "server/config/convert.h"

#include "absl/strings/str_cat.h"
#include "server/config/address.h"

namespace gemmd::server {
namespace {

constexpr int64_t kMaxTtlMs = int64_t{365} * 24 * 3600 * 1000;  // a year

SessionConfig ConvertSession(const v1::SessionConfig& message, Fields& fields) {
  const SessionConfig defaults;
  const auto ms = [](absl::Duration duration) { return absl::ToInt64Milliseconds(duration); };
  const int64_t min_ms =
      fields.Int("session.min_ttl_ms", message.min_ttl_ms(), {1, kMaxTtlMs}, ms(defaults.min_ttl));
  const int64_t max_ms = fields.Int(
      "session.max_ttl_ms", message.max_ttl_ms(),
      {.min = min_ms, .max = kMaxTtlMs, .min_field = "session.min_ttl_ms"}, ms(defaults.max_ttl));
  const int64_t default_ms = fields.Int(
      "session.default_ttl_ms", message.default_ttl_ms(),
      {min_ms, max_ms, "session.min_ttl_ms", "session.max_ttl_ms"}, ms(defaults.default_ttl));
  const int64_t grace_ms = fields.Int("session.default_grace_ms", message.default_grace_ms(),
                                      {1, kMaxTtlMs}, ms(defaults.default_grace));
  return {absl::Milliseconds(default_ms), absl::Milliseconds(min_ms), absl::Milliseconds(max_ms),
          absl::Milliseconds(grace_ms)};
}

SchedulerConfig ConvertScheduler(const v1::SchedulerConfig& message, Fields& fields) {
  const SchedulerConfig defaults;
  return {
      .lookahead = absl::Microseconds(fields.Int("scheduler.lookahead_us", message.lookahead_us(),
                                                 {10, 1000000},
                                                 absl::ToInt64Microseconds(defaults.lookahead))),
      .aging = absl::Milliseconds(fields.Int("scheduler.aging_ms", message.aging_ms(), {1, 60000},
                                             absl::ToInt64Milliseconds(defaults.aging))),
      .inline_below = absl::Microseconds(
          fields.Int("scheduler.inline_below_us", message.inline_below_us(), {0, 1000},
                     absl::ToInt64Microseconds(defaults.inline_below))),
      .processor_wake =
          message.has_processor_wake_us()
              ? std::optional(absl::Microseconds(fields.Int(
                    "scheduler.processor_wake_us", message.processor_wake_us(), {0, 1000000}, 0)))
              : std::nullopt,
      .busy_poll =
          absl::Microseconds(fields.Int("scheduler.busy_poll_us", message.busy_poll_us(),
                                        {0, 10000}, absl::ToInt64Microseconds(defaults.busy_poll))),
      .armed_linger =
          message.has_armed_linger_us()
              ? absl::Microseconds(fields.Int("scheduler.armed_linger_us",
                                              message.armed_linger_us(), {0, 1000000}, 0))
              : defaults.armed_linger,
      .armed_stream_linger =
          message.has_armed_stream_linger_us()
              ? absl::Microseconds(fields.Int("scheduler.armed_stream_linger_us",
                                              message.armed_stream_linger_us(), {0, 10000000}, 0))
              : defaults.armed_stream_linger,
  };
}

DrainConfig ConvertDrain(const v1::DrainConfig& message, Fields& fields) {
  const DrainConfig defaults;
  return {
      .notice = absl::Milliseconds(fields.Int("drain.notice_ms", message.notice_ms(), {0, 60000},
                                              absl::ToInt64Milliseconds(defaults.notice))),
      .limit = absl::Milliseconds(fields.Int("drain.limit_ms", message.limit_ms(), {0, 600000},
                                             absl::ToInt64Milliseconds(defaults.limit))),
  };
}

// The largest message that limits.max_message_bytes may allow.
constexpr int64_t kLeastReceivedBytes = 64 << 20;

ConnectionsConfig ConvertConnections(const v1::ConnectionsConfig& message, Fields& fields) {
  const int max =
      static_cast<int>(fields.IntOrUnset("connections.max", message.max(), {1, kMaxConnections}));
  const IntRange within_max = max == 0 ? IntRange{1, kMaxConnections}
                                       : IntRange{.max = max, .max_field = "connections.max"};
  return {
      .max = max,
      .max_per_peer = static_cast<int>(
          fields.IntOrUnset("connections.max_per_peer", message.max_per_peer(), within_max)),
      .max_streams = static_cast<int>(fields.Int("connections.max_streams", message.max_streams(),
                                                 {16, 100000}, ConnectionsConfig().max_streams)),
      .max_received_bytes =
          fields.IntOrUnset("connections.max_received_bytes", message.max_received_bytes(),
                            {kLeastReceivedBytes, kMaxConfigBytes})};
}

TuningConfig ConvertTuning(const v1::TuningConfig& message, Fields& fields) {
  return {.background = message.background(),
          .max_share = fields.Double("tuning.max_share", message.max_share(), 0.0001, 0.5,
                                     TuningConfig().max_share)};
}

// No listener has the address too.
void CheckAlone(const std::string& path, const std::string& address,
                absl::Span<const ListenerConfig> listeners, Fields& fields) {
  for (size_t i = 0; i < listeners.size(); ++i) {
    if (HasFreePort(address) || listeners[i].address != address) continue;
    fields.Fail(path, absl::StrCat(Quoted(address), " is taken by listeners[", i,
                                   "]; give it an address of its own"));
  }
}

ShareConfig ConvertShare(const v1::ShareConfig& message, Fields& fields) {
  if (!message.socket_path().empty()) {
    fields.Fail(CheckSocketPath("share.socket_path", message.socket_path()));
  }
  return {message.disabled(), message.socket_path()};
}

TracingConfig ConvertTracing(const v1::TracingConfig& message, Fields& fields) {
  TracingConfig tracing = {.otlp_endpoint = message.otlp_endpoint(),
                           .ca_file = message.ca_file(),
                           .plaintext_beyond_loopback = message.plaintext_beyond_loopback()};
  if (message.has_sample()) {
    tracing.sample = fields.Double("tracing.sample", message.sample(), 0, 1, 0);
  }
  if (tracing.otlp_endpoint.empty()) {
    if (message.has_sample() || !tracing.ca_file.empty()) {
      fields.Fail("tracing.otlp_endpoint",
                  "is empty beside other settings of tracing; name the collector, such as "
                  "127.0.0.1:4317, or remove tracing");
    }
    return tracing;
  }
  const bool tls = !tracing.ca_file.empty();
  if (tls && tracing.plaintext_beyond_loopback) {
    fields.Fail("tracing.plaintext_beyond_loopback", "is set beside ca_file; remove one of them");
  }
  fields.Fail(CheckCollectorAddress("tracing.otlp_endpoint", tracing.otlp_endpoint,
                                    tls || tracing.plaintext_beyond_loopback));
  return tracing;
}

LogConfig ConvertLog(const v1::LogConfig& message, Fields& fields) {
  LogConfig log;
  switch (message.format()) {
    case v1::LogConfig::FORMAT_TEXT:
      log.format = LogFormat::kText;
      break;
    case v1::LogConfig::FORMAT_JSON:
      log.format = LogFormat::kJson;
      break;
    default:
      fields.Fail("log.format", absl::StrCat(message.format(), " is not a format; give ",
                                             "FORMAT_TEXT or FORMAT_JSON"));
  }
  switch (message.level()) {
    case v1::LogConfig::LEVEL_INFO:
      log.level = LogLevel::kInfo;
      break;
    case v1::LogConfig::LEVEL_DEBUG:
      log.level = LogLevel::kDebug;
      break;
    case v1::LogConfig::LEVEL_WARNING:
      log.level = LogLevel::kWarning;
      break;
    case v1::LogConfig::LEVEL_ERROR:
      log.level = LogLevel::kError;
      break;
    default:
      fields.Fail("log.level", absl::StrCat(message.level(), " is not a level; give LEVEL_DEBUG, ",
                                            "LEVEL_INFO, LEVEL_WARNING or LEVEL_ERROR"));
  }
  log.sample_calls =
      fields.Int("log.sample_calls", message.sample_calls(), {.min = 0}, log.sample_calls);
  return log;
}

}  // namespace

absl::StatusOr<Config> ConvertConfig(const v1::ServerConfig& message,
                                     absl::Span<const std::string> extra_listeners,
                                     absl::Span<const std::string> known_devices) {
  Fields fields;
  Config config;
  const Limits top = ConvertTopLimits(message.limits(), fields);
  config.tenants = ConvertTenants(message, top, fields);
  config.listeners = ConvertListeners(message, extra_listeners, config.tenants, fields);
  config.devices = ConvertDevices(message, known_devices, fields);
  config.session = ConvertSession(message.session(), fields);
  config.scheduler = ConvertScheduler(message.scheduler(), fields);
  config.drain = ConvertDrain(message.drain(), fields);
  config.connections = ConvertConnections(message.connections(), fields);
  config.tuning = ConvertTuning(message.tuning(), fields);
  config.share = ConvertShare(message.share(), fields);
  config.metrics_address = message.metrics().address();
  if (!config.metrics_address.empty()) {
    fields.Fail(CheckMetricsAddress("metrics.address", config.metrics_address));
    CheckAlone("metrics.address", config.metrics_address, config.listeners, fields);
  }
  if (!config.share.socket_path.empty()) {
    CheckAlone("share.socket_path", absl::StrCat("unix:", config.share.socket_path),
               config.listeners, fields);
  }
  config.log = ConvertLog(message.log(), fields);
  config.tracing = ConvertTracing(message.tracing(), fields);
  config.auth = ConvertAuth(message, config.tenants, config.listeners, fields);
  if (!fields.status().ok()) return fields.status();
  return config;
}

}  // namespace gemmd::server
