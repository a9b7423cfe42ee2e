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
Limits Convert(const std::string& path, const v1::LimitsConfig& message, const Limits& base,
               Fields& fields) {
  const auto at = [&](const char* field) { return absl::StrCat(path, ".", field); };
  const auto count = [&](const char* field, int32_t value, int fallback) {
    return static_cast<int>(fields.Int(at(field), value, {1, kMaxInt32}, fallback));
  };
  Limits limits = base;
  limits.max_ops = fields.Int(at("max_ops"), message.max_ops(), {1, 65536}, base.max_ops);
  limits.max_inline_bytes = fields.Int(
      at("max_inline_bytes"), message.max_inline_bytes(),
      {.max = base.max_message_bytes, .max_field = kMaxMessageField}, base.max_inline_bytes);
  limits.max_sessions = count("max_sessions", message.max_sessions(), base.max_sessions);
  limits.max_buffers = count("max_buffers", message.max_buffers(), base.max_buffers);
  const int64_t buffer_bytes = fields.IntOrUnset(at("max_buffer_bytes"), message.max_buffer_bytes(),
                                                 {.max = kMaxConfigBytes});
  if (buffer_bytes != 0) limits.max_buffer_bytes = buffer_bytes;
  limits.max_plans = count("max_plans", message.max_plans(), base.max_plans);
  limits.max_armed = count("max_armed", message.max_armed(), base.max_armed);
  limits.max_queued_programs =
      count("max_queued_programs", message.max_queued_programs(), base.max_queued_programs);
  limits.max_streams = count("max_streams", message.max_streams(), base.max_streams);
  limits.window_batches = count("window_batches", message.window_batches(), base.window_batches);
  limits.window_bytes = fields.Int(at("window_bytes"), message.window_bytes(),
                                   {.max = kMaxConfigBytes}, base.window_bytes);
  limits.idempotency_entries =
      count("idempotency_entries", message.idempotency_entries(), base.idempotency_entries);
  limits.max_program_time =
      absl::Milliseconds(fields.Int(at("max_program_ms"), message.max_program_ms(), {1, 3'600'000},
                                    absl::ToInt64Milliseconds(base.max_program_time)));
  const int64_t queued_ms = fields.IntOrUnset(
      at("max_queued_device_ms"), message.max_queued_device_ms(), {.max = kMaxQueuedDeviceMs});
  if (queued_ms != 0) limits.max_queued_device_time = absl::Milliseconds(queued_ms);
  const int64_t upload_bytes =
      fields.IntOrUnset(at("max_upload_bytes_per_second"), message.max_upload_bytes_per_second(),
                        {.min = kMinUploadRate, .max = kMaxConfigBytes});
  if (upload_bytes != 0) limits.max_upload_bytes_per_second = upload_bytes;
  limits.max_host_bytes =
      fields.Int(at("max_host_bytes"), message.max_host_bytes(),
                 {.min = kMinHostBytes, .max = kMaxConfigBytes}, base.max_host_bytes);
  return limits;
}

}  // namespace

Limits ConvertTopLimits(const v1::LimitsConfig& message, Fields& fields) {
  Limits base;
  base.max_message_bytes = fields.Int(std::string(kMaxMessageField), message.max_message_bytes(),
                                      {65536, 67108864}, base.max_message_bytes);
  // A smaller message leaves less room for data; the framing keeps the default's share, 1/64.
  base.max_inline_bytes =
      std::min(base.max_inline_bytes, base.max_message_bytes - base.max_message_bytes / 64);
  return Convert("limits", message, base, fields);
}

Limits ConvertTenantLimits(const std::string& path, const v1::LimitsConfig& message,
                           const Limits& top, Fields& fields) {
  if (message.max_message_bytes() != 0) {
    fields.Fail(absl::StrCat(path, ".max_message_bytes"),
                absl::StrCat(message.max_message_bytes(),
                             " is set for one tenant, but connections have one limit; set ",
                             std::string(kMaxMessageField)));
  }
  return Convert(path, message, top, fields);
}

}  // namespace gemmd::server
