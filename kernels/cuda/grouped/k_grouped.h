// k-grouped matmuls of any type, strides, alignment and scales, on the device. Plain data: shared
// by host and device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/any_gemm.h"

namespace gemmd::kernels::cuda {

inline constexpr char kAnyKGroupedName[] = "sm90_k_grouped_matmul";

// Group g multiplies the `sizes[g]` columns from `starts[g]` on of gemm's a and b, which have no
// batch; its d and c are item g of gemm's, whose batch the groups are. Where there are scales of
// 1x128, starts are multiples of 128.
struct AnyKGroupedArgs {
  AnyGemmArgs gemm;
  const int32_t* starts = nullptr;
  const int32_t* sizes = nullptr;
};
// Queues it on `stream` of the current device, behind what writes starts and sizes.
cudaError_t LaunchAnyKGrouped(const AnyKGroupedArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
