#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/config/load.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status CannotChange(const char* path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot change while running; restart gemmd"));
}

// The top level's; every tenant carries it.
int64_t MaxMessageBytes(const Config& config) {
  return config.tenants.empty() ? 0 : config.tenants.front().limits.max_message_bytes;
}

}  // namespace

absl::Status CheckReload(const Config& current, const Config& next) {
  if (current.listeners != next.listeners) return CannotChange("listeners");
  if (current.devices != next.devices) return CannotChange("devices");
  if (MaxMessageBytes(current) != MaxMessageBytes(next)) {
    return CannotChange("limits.max_message_bytes");
  }
  if (current.connections != next.connections) return CannotChange("connections");
  if (current.tuning != next.tuning) return CannotChange("tuning");
  if (current.share != next.share) return CannotChange("share");
  if (current.metrics_address != next.metrics_address) return CannotChange("metrics.address");
  if (current.tracing != next.tracing) return CannotChange("tracing");
  return absl::OkStatus();
}

absl::Status CheckReload(absl::Span<const ParsedConfig> current,
                         absl::Span<const ParsedConfig> next) {
  if (current.size() != next.size()) return CannotChange("devices");
  for (size_t i = 0; i < current.size(); ++i) {
    GEMMD_RETURN_IF_ERROR(CheckReload(current[i], next[i]));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::server
