#include <string>
#include <utility>

#include "kernels/backend.h"
#include "server/engine/observe/state_metrics.h"

namespace gemmd::server {

void ReadDevices(const std::vector<const kernels::DeviceInfo*>& devices, Families& families) {
  FamilyBuilder& memory =
      families.Gauge("gemmd_device_memory_bytes", "Bytes that buffers may take of a device.");
  FamilyBuilder& peak =
      families.Gauge("gemmd_device_peak_flops",
                     "The most floating-point operations a second that matmuls can do, by dtype.");
  FamilyBuilder& clock =
      families.Gauge("gemmd_device_clock_hz", "Clock of a GPU's multiprocessors.");
  FamilyBuilder& power = families.Gauge("gemmd_device_power_watts", "Watts that a GPU draws.");
  FamilyBuilder& temperature =
      families.Gauge("gemmd_device_temperature_celsius", "Temperature of a GPU.");
  for (const kernels::DeviceInfo* device : devices) {
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
}

}  // namespace gemmd::server
