// What a device is and what its instruments say, read at each scrape: gemmd_device_memory_bytes,
// gemmd_device_peak_flops, and where it has sensors gemmd_device_clock_hz,
// gemmd_device_power_watts, gemmd_device_temperature_celsius.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_DEVICE_METRICS_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_DEVICE_METRICS_H_

#include <vector>

#include "kernels/backend.h"
#include "server/engine/observe/exposition.h"

namespace gemmd::server {

class DeviceMetrics : public ReadSource {
 public:
  // The infos outlive this.
  explicit DeviceMetrics(std::vector<const kernels::DeviceInfo*> devices);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_DEVICE_METRICS_H_
