// Rows to their experts, and back, on the device: RouteOp and CombineOp (kernels/op.h).

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"
#include "kernels/data_fault.h"

namespace gemmd::kernels::cuda {

// Numbers are dense along their last dimension.
struct RouteArgs {
  const int32_t* ids = nullptr;  // [tokens, top_k]
  int64_t ids_row = 0;
  int32_t* offsets = nullptr;    // [experts + 1]
  int32_t* rows = nullptr;       // [tokens * top_k]
  int32_t* positions = nullptr;  // [tokens, top_k]
  int64_t positions_row = 0;
  int32_t tokens = 0;
  int32_t top_k = 0;
  int32_t experts = 0;
  int32_t* counts = nullptr;  // scratch: RouteScratchBytes
  DataFault* fault = nullptr;
  bool programmatic = false;
};
int64_t RouteScratchBytes(int64_t choices, int64_t experts);
cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream);

// Strides in elements.
struct CombineArgs {
  const void* src = nullptr;                  // [src_rows, n]
  ElementType src_type = ElementType::kBF16;  // kF32, kBF16 or kF16
  int64_t src_rows = 0;
  int64_t src_row = 0;
  int64_t src_col = 1;
  const int32_t* positions = nullptr;  // [tokens, top_k]
  int64_t positions_row = 0;
  const float* weights = nullptr;  // [tokens, top_k]
  int64_t weights_row = 0;
  int64_t weights_col = 1;
  void* dst = nullptr;  // [tokens, n]
  ElementType dst_type = ElementType::kBF16;
  int64_t dst_row = 0;
  int64_t dst_col = 1;
  int64_t tokens = 0;
  int64_t n = 0;
  int32_t top_k = 0;
  DataFault* fault = nullptr;
  bool programmatic = false;
  // Positions and weights were there before the kernel in front went to work.
  bool numbers_first = false;
};
cudaError_t LaunchCombine(const CombineArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
