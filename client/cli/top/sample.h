// What `gemmctl top` looks at: the daemon at one moment, and what changed between two.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/top/scrape.h"
#include "client/cpp/client.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"

namespace gemmd::cli {

struct TopSample {
  absl::Time at;
  v1::ServerInfo info;
  std::vector<v1::Device> devices;
  std::vector<v1::SessionInfo> sessions;  // the caller's tenant's
  MetricSamples metrics;                  // empty without an address
};

// `metrics` empty: without them.
absl::StatusOr<TopSample> Look(client::Client& client, const std::string& metrics);

struct DeviceLoad {
  v1::Device device;
  double busy = 0;       // of the time in between
  double transfers = 0;  // likewise, of the copy engine beside that
  double programs_per_second = 0;
};
struct TenantLoad {
  std::string tenant;
  double device_share = 0;  // device seconds a second, over all devices
};
struct SessionLoad {
  v1::SessionInfo session;
  double device_share = 0;
};
struct TopLoad {
  double seconds = 0;  // in between
  std::vector<DeviceLoad> devices;
  std::vector<TenantLoad> tenants;    // by metrics alone; the busiest first
  std::vector<SessionLoad> sessions;  // the busiest first
  // Waiting for a device, by device and priority; by metrics alone.
  std::vector<std::pair<std::string, double>> queues;
};

// Counters that fell (another daemon has taken the place) count as no load.
TopLoad LoadBetween(const TopSample& before, const TopSample& after);

}  // namespace gemmd::cli
