#include "kernels/cuda/device/device_traits.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {

absl::StatusOr<DeviceTraits> TraitsOf(int ordinal) {
  cudaDeviceProp properties;
  absl::Status status =
      ToStatus(cudaGetDeviceProperties(&properties, ordinal), absl::StrCat("device ", ordinal));
  if (!status.ok()) return status;
  DeviceTraits traits;
  traits.ordinal = ordinal;
  traits.model = properties.name;
  traits.compute_major = properties.major;
  traits.compute_minor = properties.minor;
  traits.sms = properties.multiProcessorCount;
  traits.l2_bytes = properties.l2CacheSize;
  traits.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return traits;
}

std::string WhyNot(const DeviceTraits& device) {
  if (device.compute_major == 9 && device.compute_minor == 0) return "";
  return absl::StrCat("device is sm_", device.compute_major, device.compute_minor,
                      "; these kernels need sm_90");
}

}  // namespace gemmd::kernels::cuda
