#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

constexpr std::string_view kMaxMessageField = "limits.max_message_bytes";
constexpr int64_t kMaxQueuedDeviceMs = int64_t{24} * 3600 * 1000;
// A chunk of the largest message then waits about a quarter of an hour at most.
constexpr int64_t kMinUploadRate = 65536;
// A few programs with their results, each of the least message.
constexpr int64_t kMinHostBytes = 1 << 20;

// Everything but max_message_bytes, which is `base`'s.
Limits Convert(Section& section, const Limits& base) {
  const IntRange bytes = {.max = kMaxConfigBytes};
  Limits limits = base;
  for (const auto& [name, limit] : {std::pair("max_sessions", &limits.max_sessions),
                                    {"max_buffers", &limits.max_buffers},
                                    {"max_plans", &limits.max_plans},
                                    {"max_armed", &limits.max_armed},
                                    {"max_queued_programs", &limits.max_queued_programs},
                                    {"max_streams", &limits.max_streams},
                                    {"window_batches", &limits.window_batches},
                                    {"idempotency_entries", &limits.idempotency_entries}}) {
    *limit = static_cast<int>(section.Int(name, {}, *limit));
  }
  limits.max_ops = static_cast<int>(section.Int("max_ops", {1, 65536}, base.max_ops));
  limits.max_inline_bytes = section.Int(
      "max_inline_bytes", {.max = base.max_message_bytes, .max_field = kMaxMessageField},
      base.max_inline_bytes);
  limits.max_buffer_bytes = section.IntOrUnset("max_buffer_bytes", bytes, base.max_buffer_bytes);
  limits.window_bytes = section.Int("window_bytes", bytes, base.window_bytes);
  limits.max_program_time = section.Time("max_program_ms", {1, 3'600'000}, base.max_program_time);
  const bool bounded = base.max_queued_device_time != absl::InfiniteDuration();
  const int64_t queued_ms =
      section.IntOrUnset("max_queued_device_ms", {.max = kMaxQueuedDeviceMs},
                         bounded ? absl::ToInt64Milliseconds(base.max_queued_device_time) : 0);
  if (queued_ms != 0) limits.max_queued_device_time = absl::Milliseconds(queued_ms);
  limits.max_upload_bytes_per_second = section.IntOrUnset(
      "max_upload_bytes_per_second", {.min = kMinUploadRate, .max = kMaxConfigBytes},
      base.max_upload_bytes_per_second);
  limits.max_host_bytes = section.Int(
      "max_host_bytes", {.min = kMinHostBytes, .max = kMaxConfigBytes}, base.max_host_bytes);
  return limits;
}

}  // namespace

Limits ConvertTopLimits(v1::LimitsConfig& message, Fields& fields) {
  Section section("limits", message, fields);
  Limits base;
  base.max_message_bytes =
      section.Int("max_message_bytes", {65536, 67108864}, base.max_message_bytes);
  // A smaller message leaves less room for data; the framing keeps the default's share, 1/64.
  base.max_inline_bytes =
      std::min(base.max_inline_bytes, base.max_message_bytes - base.max_message_bytes / 64);
  return Convert(section, base);
}

Limits ConvertTenantLimits(const std::string& path, v1::LimitsConfig& message, const Limits& top,
                           Fields& fields) {
  Section section(path, message, fields);
  if (message.max_message_bytes() != 0) {
    section.Fail("max_message_bytes",
                 absl::StrCat(message.max_message_bytes(),
                              " is set for one tenant, but connections have one limit; set ",
                              std::string(kMaxMessageField)));
  }
  return Convert(section, top);
}

}  // namespace gemmd::server
