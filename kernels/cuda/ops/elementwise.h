// Convert, Copy and Fill on the device, for strided views of rank up to 3.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

inline constexpr int kElementwiseRank = 3;

// dst = (dst type) src with the rules of ConvertOp (kernels/op.h), equal to the CPU backend's bit
// for bit; equal types copy the bits, which is CopyOp. Lower ranks have leading extents of 1.
// Strides in elements, at least 0; 0 repeats an element and is legal in src only. src and dst must
// not overlap. Dense, aligned runs are moved 4 or 8 elements at a time.
struct ConvertArgs {
  int64_t shape[kElementwiseRank] = {1, 1, 0};
  const void* src = nullptr;
  ElementType src_type = ElementType::kF32;
  int64_t src_stride[kElementwiseRank] = {0, 0, 1};
  void* dst = nullptr;
  ElementType dst_type = ElementType::kF32;
  int64_t dst_stride[kElementwiseRank] = {0, 0, 1};
  bool programmatic = false;  // the launch may overlap the previous kernel's end
  bool independent = false;   // and need not wait for it first (independent.h)
};

// Every element of dst = the low `type`-sized bytes of `code`: the value as dst's type stores it.
struct FillArgs {
  int64_t shape[kElementwiseRank] = {1, 1, 0};
  void* dst = nullptr;
  ElementType type = ElementType::kF32;
  int64_t dst_stride[kElementwiseRank] = {0, 0, 1};
  uint32_t code = 0;
  bool programmatic = false;
  bool independent = false;
};

// Queue it on `stream` of the current device. Views without elements are success.
cudaError_t LaunchConvert(const ConvertArgs& args, cudaStream_t stream);
cudaError_t LaunchFill(const FillArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
