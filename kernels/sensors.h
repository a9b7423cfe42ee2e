// What a device's own instruments say: clocks, power, memory as its driver counts it.

#pragma once

#include <cstdint>

namespace gemmd::kernels {

// 0 where the device does not tell.
struct SensorReading {
  int64_t memory_total_bytes = 0;
  int64_t memory_used_bytes = 0;  // by every process of the machine, and by the driver
  double clock_hz = 0;            // of the multiprocessors, now
  double memory_clock_hz = 0;
  double power_watts = 0;
  double power_limit_watts = 0;
  double temperature_celsius = 0;
};

// Thread-safe. A reading may be up to a quarter of a second old.
class Sensors {
 public:
  virtual ~Sensors() = default;
  virtual SensorReading Read() const = 0;
};

}  // namespace gemmd::kernels
