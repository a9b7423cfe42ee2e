#include "kernels/cuda/device/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(NvmlTest, ReadsInBaseUnitsAndLeavesZeroWhatIsNotTold) {
  const auto sensors = OpenNvml("GPU-fake", FAKE_NVML_PATH);
  ASSERT_TRUE(sensors.ok()) << sensors.status();
  const SensorReading reading = (*sensors)->Read();
  EXPECT_EQ(reading.memory_total_bytes, int64_t{150} << 30);
  EXPECT_EQ(reading.memory_used_bytes, int64_t{40} << 30);
  EXPECT_DOUBLE_EQ(reading.clock_hz, 1980e6);
  EXPECT_DOUBLE_EQ(reading.memory_clock_hz, 3201e6);
  EXPECT_DOUBLE_EQ(reading.power_watts, 312.5);
  EXPECT_EQ(reading.power_limit_watts, 0);
  EXPECT_DOUBLE_EQ(reading.temperature_celsius, 41);
}

TEST(NvmlTest, EachReaderStartsAndStopsItForItself) {
  auto first = OpenNvml("GPU-fake", FAKE_NVML_PATH);
  auto second = OpenNvml("GPU-fake", FAKE_NVML_PATH);
  ASSERT_TRUE(first.ok() && second.ok());
  first->reset();
  EXPECT_DOUBLE_EQ((*second)->Read().temperature_celsius, 41);
}

TEST(NvmlTest, AGpuThatItDoesNotKnowIsNamed) {
  const auto sensors = OpenNvml("GPU-other", FAKE_NVML_PATH);
  EXPECT_EQ(sensors.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(sensors.status().message()), HasSubstr("GPU-other: Not Found"));
}

TEST(NvmlTest, ALibraryThatIsNotThereOrIsAnotherOneIsRefused) {
  EXPECT_EQ(OpenNvml("GPU-fake", "libgemmd-none.so").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(OpenNvml("GPU-fake", "libc.so.6").status().message()),
              HasSubstr("nvmlInit_v2"));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
