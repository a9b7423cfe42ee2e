// What a math thread's results are: FP32, or S32 of INT8. Sums travel between threads as bits.

#pragma once

#include "kernels/cuda/sm90/gemm_config.h"

namespace gemmd::kernels::cuda {

template <bool kIntegers>
struct SumType {
  using Type = float;
};
template <>
struct SumType<true> {
  using Type = int;
};
template <GemmConfig C>
using Sum = typename SumType<C.mma == Mma::kI8>::Type;

__device__ __forceinline__ float BitsOf(float sum) { return sum; }
__device__ __forceinline__ float BitsOf(int sum) { return __int_as_float(sum); }

template <class T>
__device__ __forceinline__ T FromBits(float bits);
template <>
__device__ __forceinline__ float FromBits<float>(float bits) {
  return bits;
}
template <>
__device__ __forceinline__ int FromBits<int>(float bits) {
  return __float_as_int(bits);
}

// To a sum, as bits, another one.
template <class T>
__device__ __forceinline__ void AddBits(float& sum, float more);
template <>
__device__ __forceinline__ void AddBits<float>(float& sum, float more) {
  sum += more;
}
template <>
__device__ __forceinline__ void AddBits<int>(float& sum, float more) {
  sum = __int_as_float(__float_as_int(sum) + __float_as_int(more));
}

}  // namespace gemmd::kernels::cuda
