// What the kernels of weighted sums have in common.

#pragma once

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ops/store_results.cuh"

namespace gemmd::kernels::cuda {

// Choice j's row, read once, since it may change meanwhile; -1: none. `tells` one thread of a
// token.
__device__ __forceinline__ int64_t PlaceOf(const CombineArgs& args, int64_t token, int j,
                                           bool tells) {
  const int32_t* from = args.positions + token * args.positions_row + j;
  const int32_t place = *const_cast<const volatile int32_t*>(from);
  if (place >= -1 && place < args.src_rows) return place;
  if (tells) {
    *reinterpret_cast<int4*>(args.fault) = make_int4(static_cast<int>(DataFaultKind::kPosition),
                                                     static_cast<int>(token * args.top_k + j),
                                                     place, static_cast<int>(args.src_rows) - 1);
  }
  return -1;
}

// The hardware's conversion has one NaN for all.
template <ElementType kTo, int kCount>
__device__ __forceinline__ void PackSums(const float (&sums)[kCount],
                                         uint32_t (&words)[kCount / 2]) {
  bool nan = false;
#pragma unroll
  for (int i = 0; i < kCount; ++i) nan |= sums[i] != sums[i];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) words[i] = PackNumbers<kTo>(sums[2 * i], sums[2 * i + 1]);
  if (!nan) return;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    words[i] = FromF32(kTo, sums[2 * i]) | FromF32(kTo, sums[2 * i + 1]) << 16;
  }
}

template <int kCount>
__device__ __forceinline__ void StoreSums(const CombineArgs& args, int64_t at,
                                          const float (&sums)[kCount]) {
  const int bytes = ElementBytes(args.dst_type);
  if (bytes == 4) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      reinterpret_cast<float4*>(static_cast<float*>(args.dst) + at)[i / 4] =
          make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    }
    return;
  }
  uint32_t words[kCount / 2];
  // Either type's way apart: asked for at each element, it is most of a kernel's instructions.
  if (args.dst_type == ElementType::kBF16) {
    PackSums<ElementType::kBF16>(sums, words);
  } else {
    PackSums<ElementType::kF16>(sums, words);
  }
  uint16_t* const dst = static_cast<uint16_t*>(args.dst) + at;
  if constexpr (kCount == 8) {
    *reinterpret_cast<uint4*>(dst) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    *reinterpret_cast<uint2*>(dst) = make_uint2(words[0], words[1]);
  }
}

// What `launch` returns, called with the rows' type as its template's argument.
template <typename Launch>
cudaError_t BySourceType(const CombineArgs& args, const Launch& launch) {
  switch (args.src_type) {
    case ElementType::kF32:
      return launch.template operator()<ElementType::kF32>();
    case ElementType::kBF16:
      return launch.template operator()<ElementType::kBF16>();
    default:
      return launch.template operator()<ElementType::kF16>();
  }
}

// Of few rows a token, with rows and sums as below: combine_few.cu.
bool TakesCombineFew(const CombineArgs& args);
cudaError_t LaunchCombineFew(const CombineArgs& args, cudaStream_t stream);
// Of many tokens, whose rows and sums are whole units of 16 bytes: combine_rows.cu.
bool TakesCombineRows(const CombineArgs& args);
cudaError_t LaunchCombineRows(const CombineArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
