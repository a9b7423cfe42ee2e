
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "server/engine/observe/state_metrics.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class FakeSensors : public kernels::Sensors {
 public:
  explicit FakeSensors(kernels::SensorReading reading) : reading_(reading) {}
  kernels::SensorReading Read() const override { return reading_; }

 private:
  const kernels::SensorReading reading_;
};

std::map<std::string, double> Read(const std::vector<const kernels::DeviceInfo*>& devices) {
  Families read;
  ReadDevices(devices, read);
  std::vector<prometheus::MetricFamily> families;
  std::move(read).MoveTo(families);
  std::map<std::string, double> values;
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) absl::StrAppend(&name, " ", label.value);
      values[name] = metric.gauge.value;
    }
  }
  return values;
}

TEST(DeviceMetricsTest, ADeviceWithoutSensorsTellsWhatItIs) {
  kernels::DeviceInfo cpu{.name = "cpu:0", .memory_bytes = 4096};
  cpu.peak_flops[static_cast<size_t>(kernels::DType::kF32)] = 2e11;
  EXPECT_THAT(Read({&cpu}), ElementsAre(Pair("gemmd_device_memory_bytes cpu:0", 4096),
                                        Pair("gemmd_device_peak_flops cpu:0 f32", 2e11)));
}

TEST(DeviceMetricsTest, SensorsAreReadOfEachDevice) {
  const auto sensors = [](double watts) {
    return std::make_shared<FakeSensors>(kernels::SensorReading{
        .clock_hz = 1.98e9, .power_watts = watts, .temperature_celsius = 41});
  };
  const kernels::DeviceInfo one{.name = "cuda:0", .sensors = sensors(300)};
  const kernels::DeviceInfo two{.name = "cuda:1", .sensors = sensors(650)};
  EXPECT_THAT(Read({&one, &two}), ElementsAre(Pair("gemmd_device_clock_hz cuda:0", 1.98e9),
                                              Pair("gemmd_device_clock_hz cuda:1", 1.98e9),
                                              Pair("gemmd_device_memory_bytes cuda:0", 0),
                                              Pair("gemmd_device_memory_bytes cuda:1", 0),
                                              Pair("gemmd_device_power_watts cuda:0", 300),
                                              Pair("gemmd_device_power_watts cuda:1", 650),
                                              Pair("gemmd_device_temperature_celsius cuda:0", 41),
                                              Pair("gemmd_device_temperature_celsius cuda:1", 41)));
}

// 0 is what a sensor gives that does not tell: a GPU at 0 degrees would be a lie.
TEST(DeviceMetricsTest, WhatASensorDoesNotTellIsLeftOut) {
  const kernels::DeviceInfo info{
      .name = "cuda:0",
      .sensors = std::make_shared<FakeSensors>(kernels::SensorReading{.power_watts = 90})};
  EXPECT_THAT(Read({&info}), ElementsAre(Pair("gemmd_device_memory_bytes cuda:0", 0),
                                         Pair("gemmd_device_power_watts cuda:0", 90)));
}

}  // namespace
}  // namespace gemmd::server
