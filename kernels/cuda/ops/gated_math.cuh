// The arithmetic of Gated, shared by its kernels.

#pragma once

#include <climits>

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ops/gated.h"

namespace gemmd::kernels::cuda {

// The rows that are somebody's, where offsets tell: numbers are read once, since they may change.
struct RowRange {
  int begin = 0;
  int end = INT_MAX;

  __device__ __forceinline__ void Load(const GatedArgs& args) {
    if (args.range_begin == nullptr) return;
    begin = *const_cast<const volatile int32_t*>(args.range_begin);
    end = *const_cast<const volatile int32_t*>(args.range_end);
  }
  __device__ __forceinline__ bool Has(int64_t row) const { return row >= begin && row < end; }
};

// y[i] = activation(gate[i]) * (up[i] + up_offset), both clamped first. Operations are rounded one
// by one, as in activation.cuh.
template <int kCount>
__device__ __forceinline__ void MultiplyGated(const GatedArgs& args, float (&gate)[kCount],
                                              float (&up)[kCount], float* y) {
  if (args.limit > 0.0f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gate[i] = MinNaN(gate[i], args.limit);
      up[i] = ptx::MaxNaN(MinNaN(up[i], args.limit), -args.limit);
    }
  }
  WithActivation(args.activation, [&]<ActivationType kType>() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      y[i] = __fmul_rn(Activated<kType>(gate[i], args.alpha), __fadd_rn(up[i], args.up_offset));
    }
  });
}

// y[i] = activation(gate[i]), clamped first, of gates alone.
template <int kCount>
__device__ __forceinline__ void ActivateGates(const GatedArgs& args, float (&gate)[kCount],
                                              float* y) {
  if (args.limit > 0.0f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate[i] = MinNaN(gate[i], args.limit);
  }
  WithActivation(args.activation, [&]<ActivationType kType>() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = Activated<kType>(gate[i], args.alpha);
  });
}

}  // namespace gemmd::kernels::cuda
