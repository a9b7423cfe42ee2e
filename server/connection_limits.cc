#include "server/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>

#include "kernels/cpu/device_info.h"

namespace gemmd::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kUsualDescriptors = 1024;

int64_t MaxDescriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kUsualDescriptors;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kMaxConnections * 2));
}

}  // namespace

guard::ConnectionLimits LimitsOf(const Config& config) {
  int64_t message_bytes = 0;
  for (const TenantConfig& tenant : config.tenants) {
    message_bytes = std::max(message_bytes, tenant.limits.max_message_bytes);
  }
  return guard::Resolve({.max = config.connections.max,
                         .max_per_peer = config.connections.max_per_peer,
                         .max_streams = config.connections.max_streams,
                         // A client's first requests, several at a time.
                         .max_unfinished_bytes = std::max(128 * kMiB, 4 * message_bytes)},
                        MaxDescriptors());
}

int64_t ReceiveQuotaBytes(const ConnectionsConfig& config) {
  if (config.max_received_bytes > 0) return config.max_received_bytes;
  // Half of the memory, as a device's default.
  const int64_t half = kernels::cpu::DescribeCpu("cpu:0", 1, 0).memory_bytes;
  return std::max(256 * kMiB, half / 2);
}

}  // namespace gemmd::server
