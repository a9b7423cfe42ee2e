#include "kernels/cuda/device/gpu_uuid.h"

#include <cuda.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/driver_function.h"

namespace gemmd::kernels::cuda {

absl::StatusOr<std::string> GpuUuid(int ordinal) {
  // By the driver, as clients ask for it: the runtime's own properties leave open whether a MIG
  // slice has its parent's UUID.
  const auto get = DriverFunction<decltype(&cuDeviceGetUuid)>("cuDeviceGetUuid");
  if (!get.ok()) return get.status();
  CUuuid uuid;
  const absl::Status status = ToStatus((*get)(&uuid, ordinal), "asking for the GPU's UUID");
  if (!status.ok()) return status;
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace gemmd::kernels::cuda
