// Scales by row in a grouped matmul, of INT8 and E4M3: one for each row of A and one for each of
// the weights, read while the tile multiplies. Sums become floats where they lie, so that the store
// is that of types without scales.

#pragma once

#include "kernels/cuda/sm90/direct/sm90_direct_group_walk.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// Whether sums are integers.
template <class T>
inline constexpr bool kIsInteger = false;
template <>
inline constexpr bool kIsInteger<int> = true;
template <GemmConfig C>
inline constexpr bool kSumsIntegers = kIsInteger<Sum<C>>;

// A warp's: 16 of the tile's weights by all its rows of A.
template <GemmConfig C>
struct GroupScales {
  static constexpr int kEach = C.cols / 32;
  float of_a[kEach];  // lane l has those of rows l, l + 32, ..
  float of_b[2];      // the lane's two rows of the weights

  // `n`: the warp's first row of the weights. Rows behind the tile's end, or behind the last of the
  // weights, have any scale: their products go nowhere.
  __device__ __forceinline__ void Load(const DirectGroupedLaunch& launch, const GroupTile& tile,
                                       int n, int lane) {
    const GemmArgs& args = launch.args;
    const int rows = tile.row_end - tile.row0;
    const float* const a = args.a_scales;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      of_a[i] = 1.0f;
      const int row = i * 32 + lane;
      if (a == nullptr || row >= rows) continue;
      of_a[i] = __ldg(a + tile.item * args.a_scales_batch +
                      static_cast<int64_t>(tile.row0 + row) * args.a_scales_ld);
    }
    const float* const b = launch.table != nullptr ? launch.table[tile.group].scales
                           : args.b_scales != nullptr
                               ? args.b_scales + tile.group * args.b_scales_batch
                               : nullptr;
    const int last = static_cast<int>(args.n) - 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of_b[i] = 1.0f;
      if (b == nullptr) continue;
      of_b[i] = __ldg(b + static_cast<int64_t>(min(n + lane / 4 + i * 8, last)) * args.b_scales_ld);
    }
  }

  // Of a tile of so many rows: the others' sums are of no use. By the whole warp.
  __device__ __forceinline__ void Apply(Sum<C> (&sums)[C.result_regs()], int rows, int lane) const {
    constexpr int kChunksEach = 32 / 8;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i > 0 && i * 32 >= rows) break;
#pragma unroll
      for (int j = 0; j < kChunksEach; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        const float left = __shfl_sync(0xffffffffu, of_a[i], column);
        const float right = __shfl_sync(0xffffffffu, of_a[i], column + 1);
        Sum<C>* const v = sums + (i * kChunksEach + j) * 4;
        v[0] = Scaled(v[0], of_b[0] * left);
        v[1] = Scaled(v[1], of_b[0] * right);
        v[2] = Scaled(v[2], of_b[1] * left);
        v[3] = Scaled(v[3], of_b[1] * right);
      }
    }
  }

 private:
  static __device__ __forceinline__ int Scaled(int sum, float scale) {
    return __float_as_int(static_cast<float>(sum) * scale);
  }
  static __device__ __forceinline__ float Scaled(float sum, float scale) { return sum * scale; }
};

}  // namespace gemmd::kernels::cuda
