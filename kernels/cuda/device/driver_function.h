// DriverFunction: a function of the CUDA driver by name.

#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {

// Asked for at run time: linking the driver library would keep a binary from starting where there
// is no GPU. UNIMPLEMENTED when the driver has none of that name.
template <typename Function>
absl::StatusOr<Function> DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const absl::Status status =
      ToStatus(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
               absl::StrCat("looking up ", name));
  if (!status.ok()) return status;
  if (found != cudaDriverEntryPointSuccess) {
    return absl::UnimplementedError(
        absl::StrCat("the driver has no ", name, "; it must be of CUDA 12.0 or newer"));
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace gemmd::kernels::cuda
