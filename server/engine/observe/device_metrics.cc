#include "server/engine/observe/device_metrics.h"

#include <utility>

#include "server/engine/observe/exposition.h"

namespace gemmd::server {

using prometheus::MetricFamily;
using prometheus::MetricType;

DeviceMetrics::DeviceMetrics(std::vector<const kernels::DeviceInfo*> devices)
    : devices_(std::move(devices)) {}

std::vector<MetricFamily> DeviceMetrics::Collect() const {
  FamilyBuilder memory("gemmd_device_memory_bytes", "Bytes that buffers may take of a device.",
                       MetricType::Gauge);
  FamilyBuilder peak("gemmd_device_peak_flops",
                     "The most floating-point operations a second that matmuls can do, by dtype.",
                     MetricType::Gauge);
  FamilyBuilder clock("gemmd_device_clock_hz", "Clock of a GPU's multiprocessors.",
                      MetricType::Gauge);
  FamilyBuilder power("gemmd_device_power_watts", "Watts that a GPU draws.", MetricType::Gauge);
  FamilyBuilder temperature("gemmd_device_temperature_celsius", "Temperature of a GPU.",
                            MetricType::Gauge);
  for (const kernels::DeviceInfo* device : devices_) {
    memory.Add({{"device", device->name}}, static_cast<double>(device->memory_bytes));
    for (const kernels::DTypeInfo& dtype : kernels::kDTypes) {
      const double flops = device->peak_flops[static_cast<size_t>(dtype.dtype)];
      if (flops == 0) continue;
      peak.Add({{"device", device->name}, {"dtype", std::string(dtype.name)}}, flops);
    }
    if (device->sensors == nullptr) continue;
    const kernels::SensorReading reading = device->sensors->Read();
    for (const auto& [family, value] :
         {std::pair(&clock, reading.clock_hz), std::pair(&power, reading.power_watts),
          std::pair(&temperature, reading.temperature_celsius)}) {
      if (value != 0) family->Add({{"device", device->name}}, value);  // 0: it does not tell
    }
  }
  std::vector<MetricFamily> families;
  for (FamilyBuilder* family : {&memory, &peak, &clock, &power, &temperature}) {
    std::move(*family).AppendTo(families);
  }
  return families;
}

}  // namespace gemmd::server
