#include "server/config/convert.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "server/config/address.h"

namespace gemmd::server {
namespace {

constexpr int64_t kMaxTtlMs = int64_t{365} * 24 * 3600 * 1000;  // a year

SessionConfig ConvertSession(v1::SessionConfig& message, Fields& fields) {
  Section section("session", message, fields);
  const auto ms = [](absl::Duration duration) { return absl::ToInt64Milliseconds(duration); };
  SessionConfig session;
  session.min_ttl = section.Time("min_ttl_ms", {1, kMaxTtlMs}, session.min_ttl);
  session.max_ttl = section.Time(
      "max_ttl_ms",
      {.min = ms(session.min_ttl), .max = kMaxTtlMs, .min_field = "session.min_ttl_ms"},
      session.max_ttl);
  session.default_ttl = section.Time(
      "default_ttl_ms",
      {ms(session.min_ttl), ms(session.max_ttl), "session.min_ttl_ms", "session.max_ttl_ms"},
      session.default_ttl);
  session.default_grace = section.Time("default_grace_ms", {1, kMaxTtlMs}, session.default_grace);
  return session;
}

SchedulerConfig ConvertScheduler(v1::SchedulerConfig& message, Fields& fields) {
  Section section("scheduler", message, fields);
  SchedulerConfig scheduler;
  scheduler.lookahead = section.Time("lookahead_us", {10, 1000000}, scheduler.lookahead);
  scheduler.aging = section.Time("aging_ms", {1, 60000}, scheduler.aging);
  scheduler.inline_below = section.Time("inline_below_us", {0, 1000}, scheduler.inline_below);
  if (message.has_processor_wake_us()) {
    scheduler.processor_wake =
        section.Time("processor_wake_us", {0, 1000000}, absl::ZeroDuration());
  }
  scheduler.busy_poll = section.Time("busy_poll_us", {0, 10000}, scheduler.busy_poll);
  scheduler.armed_linger = section.Time("armed_linger_us", {0, 1000000}, scheduler.armed_linger);
  scheduler.armed_stream_linger =
      section.Time("armed_stream_linger_us", {0, 10000000}, scheduler.armed_stream_linger);
  return scheduler;
}

DrainConfig ConvertDrain(v1::DrainConfig& message, Fields& fields) {
  Section section("drain", message, fields);
  const DrainConfig defaults;
  return {.notice = section.Time("notice_ms", {0, 60000}, defaults.notice),
          .limit = section.Time("limit_ms", {0, 600000}, defaults.limit)};
}

// The largest message that limits.max_message_bytes may allow.
constexpr int64_t kLeastReceivedBytes = 64 << 20;

ConnectionsConfig ConvertConnections(v1::ConnectionsConfig& message, Fields& fields) {
  Section section("connections", message, fields);
  const int max = static_cast<int>(section.IntOrUnset("max", {1, kMaxConnections}));
  const IntRange within_max = max == 0 ? IntRange{1, kMaxConnections}
                                       : IntRange{.max = max, .max_field = "connections.max"};
  return {.max = max,
          .max_per_peer = static_cast<int>(section.IntOrUnset("max_per_peer", within_max)),
          .max_streams = static_cast<int>(
              section.Int("max_streams", {16, 100000}, ConnectionsConfig().max_streams)),
          .max_received_bytes =
              section.IntOrUnset("max_received_bytes", {kLeastReceivedBytes, kMaxConfigBytes})};
}

TuningConfig ConvertTuning(v1::TuningConfig& message, Fields& fields) {
  Section section("tuning", message, fields);
  return {.background = message.background(),
          .max_share = section.Double("max_share", 0.0001, 0.5, TuningConfig().max_share)};
}

// No listener has the address too.
void CheckAlone(const std::string& path, const std::string& address,
                absl::Span<const ListenerConfig> listeners, Fields& fields) {
  for (size_t i = 0; i < listeners.size(); ++i) {
    if (!Collide(address, listeners[i].address)) continue;
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

TracingConfig ConvertTracing(v1::TracingConfig& message, Fields& fields) {
  TracingConfig tracing = {.otlp_endpoint = message.otlp_endpoint(),
                           .ca_file = message.ca_file(),
                           .plaintext_beyond_loopback = message.plaintext_beyond_loopback()};
  const bool has_sample = message.has_sample();
  if (has_sample || !tracing.otlp_endpoint.empty()) {
    tracing.sample = Section("tracing", message, fields).Double("sample", 0, 1, tracing.sample);
  }
  if (tracing.otlp_endpoint.empty()) {
    if (has_sample || !tracing.ca_file.empty()) {
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

LogConfig ConvertLog(v1::LogConfig& message, Fields& fields) {
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
  log.sample_calls = static_cast<int>(
      Section("log", message, fields).Int("sample_calls", {.min = 0}, log.sample_calls));
  return log;
}

}  // namespace

absl::StatusOr<ParsedConfig> ConvertConfig(v1::ServerConfig message,
                                           absl::Span<const std::string> extra_listeners,
                                           absl::Span<const std::string> known_devices) {
  Fields fields;
  ParsedConfig config;
  const Limits top = ConvertTopLimits(*message.mutable_limits(), fields);
  config.tenants = ConvertTenants(message, top, fields);
  config.listeners = ConvertListeners(message, extra_listeners, config.tenants, fields);
  config.devices = ConvertDevices(message, known_devices, fields);
  config.session = ConvertSession(*message.mutable_session(), fields);
  config.scheduler = ConvertScheduler(*message.mutable_scheduler(), fields);
  config.drain = ConvertDrain(*message.mutable_drain(), fields);
  config.connections = ConvertConnections(*message.mutable_connections(), fields);
  config.tuning = ConvertTuning(*message.mutable_tuning(), fields);
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
  config.log = ConvertLog(*message.mutable_log(), fields);
  config.tracing = ConvertTracing(*message.mutable_tracing(), fields);
  config.auth = ConvertAuth(message, config.tenants, config.listeners, fields);
  if (!fields.status().ok()) return fields.status();
  google::protobuf::TextFormat::PrintToString(message, &config.text);
  return config;
}

}  // namespace gemmd::server
