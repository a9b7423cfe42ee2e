// A math warpgroup of a grouped matmul of E4M3 whose scales wait for the results: as
// sm90_direct_group_math.cuh, but products of 128 of k go into accumulators of their own, and from
// there into the result, as sm90_fp8_row_math.cuh has it.

#pragma once

#include "kernels/cuda/sm90/direct/sm90_direct_group_math.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C, GemmConfig T>
struct RowGroupMath : GroupMath<C, T> {
  using Base = GroupMath<C, T>;
  using Base::Base;
  using Base::issue;
  using Base::result;
  using Base::rows_units;
  using Base::smem;

  // Columns of a chain at most: accumulators beside the results of 256 have to fit.
  static constexpr int kMostChain = 128;

  // The chain of one k block, by `kCols` columns.
  template <int kCols>
  __device__ __forceinline__ void Multiply(float (&sums)[kCols / 2], uint32_t rows,
                                           uint32_t cols) const {
    constexpr int kBytesAtOnce = 32;  // of k, by one instruction
    ptx::Pin(sums);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kRowBytes / kBytesAtOnce; ++i) {
      const int k = i * (kBytesAtOnce / 16);
      ptx::Wgmma<kCols>::Multiply(sums, ptx::KMajorDescriptor(rows + k),
                                  ptx::KMajorDescriptor(cols + k), i != 0);
    }
    ptx::WgmmaCommit();
  }

  // A tile of `stages`, at least one, by `kCols` columns: wide ones in two chains, between which
  // the other warpgroup keeps the tensor cores busy.
  template <int kCols, int kBlocks>
  __device__ __forceinline__ void Run(int stages) {
    constexpr int kChains = kCols > kMostChain ? 2 : 1, kWidth = kCols / kChains;
    constexpr int kParts = kBlocks * kChains;
    static_assert(kWidth % 8 == 0 && kWidth <= kMostChain, "swizzled rows come in groups of 8");
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i) result[i] = 0;
    float sums[kWidth / 2];
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
      const uint32_t rows = rows_units + stage;
      const uint32_t cols = (smem.Rows(0) + kBlocks * C.row_bytes()) / 16 + stage;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int block = part / kChains, chain = part % kChains;
        Multiply<kWidth>(sums, rows + block * (C.row_bytes() / 16),
                         cols + block * (T.col_bytes() / 16) + chain * (kWidth * kRowBytes / 16));
        if (part + 1 == kParts) {
          issue.Advance();
          if (i + 1 < stages) ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
        }
        ptx::WgmmaWait<0>();
        ptx::Pin(sums);
        if (part + 1 == kParts) Base::Release();
#pragma unroll
        for (int j = 0; j < kWidth / 2; ++j) result[chain * (kWidth / 2) + j] += sums[j];
      }
    }
  }
  // By as few columns as hold so many boxes.
  template <int kBoxes = 3>
  __device__ __forceinline__ void RunWide(int stages, int boxes) {
    constexpr int kCols = kBoxes * kRowsAWideBox;
    if constexpr (kCols < C.cols) {
      if (boxes > kBoxes) return RunWide<kBoxes + 1>(stages, boxes);
    }
    Run<kCols, 1>(stages);
  }
};

template <GemmConfig C, GemmConfig T, bool kPromotes = C.promotes()>
struct GroupMathOf {
  using Type = GroupMath<C, T>;
};
template <GemmConfig C, GemmConfig T>
struct GroupMathOf<C, T, true> {
  using Type = RowGroupMath<C, T>;
};

}  // namespace gemmd::kernels::cuda
