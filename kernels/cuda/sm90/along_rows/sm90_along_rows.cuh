// Operands of 16-bit types that lie along their rows, [k, rows], and not along k: a stage has boxes
// of 64 rows, in each 128 bytes for each k of a k block.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/gemm_config.h"

namespace gemmd::kernels::cuda {

inline constexpr int kAlongRowsBoxBytes = kAlongRowsBox * kRowBytes;

// A descriptor has 14 bits for an address, and above them the distance between boxes: there the
// number of a CTA in its cluster must not stand.
__device__ __forceinline__ uint32_t AlongRowsUnits(uint32_t units) { return units & 0x3fff; }
__device__ __forceinline__ uint64_t AlongRowsDescriptor(uint32_t units) {
  return ptx::MnMajorDescriptor<kAlongRowsBoxBytes>(units);
}
// Units of 16 bytes from what one instruction multiplies, 16 of k, to the next.
inline constexpr int kAlongRowsStep = 16 * kRowBytes / 16;

// `kRows` rows of an operand from `row` on, and from `k` on one k block, or several: those lie
// `kBlockBytes` apart. Into each CTA of `peers` if they are shared.
template <int kRows, bool kShared, int kBlocks = 1, int kBlockBytes = 0>
__device__ __forceinline__ void LoadAlongRows(const CUtensorMap* map, uint32_t full,
                                              uint32_t target, int row, int k, int batch,
                                              uint16_t peers, uint64_t policy) {
  static_assert(kRows % kAlongRowsBox == 0);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int box = 0; box < kRows / kAlongRowsBox; ++box) {
      const uint32_t to = target + block * kBlockBytes + box * kAlongRowsBoxBytes;
      const int x = (row + box * kAlongRowsBox) * 2, y = k + block * (kRowBytes / 2);
      if constexpr (kShared) {
        ptx::TensorLoadMulticast(map, full, to, x, y, 0, batch, peers, policy);
      } else {
        ptx::TensorLoad(map, full, to, x, y, 0, batch, policy);
      }
    }
  }
}

}  // namespace gemmd::kernels::cuda
