// What launches and the cost model need to know of a device.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

struct DeviceTraits {
  int ordinal = 0;
  std::string model;  // "NVIDIA H200"
  int compute_major = 9;
  int compute_minor = 0;
  int sms = 132;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
};
absl::StatusOr<DeviceTraits> TraitsOf(int ordinal);

// Empty when the kernels run on `device`: "device is sm_80; these kernels need sm_90".
std::string WhyNot(const DeviceTraits& device);

}  // namespace gemmd::kernels::cuda
