// A math warpgroup of a grouped matmul in BF16, FP16 or INT8: as sm90_direct_math.cuh, by as many
// columns as a tile has.

#pragma once

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_math.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/sm90_give_back.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// A math warpgroup: 64 of the tile's weights by its rows of A. The weights may lie along their
// rows.
template <GemmConfig C, GemmConfig T>
struct GroupMath {
  using Weights = DirectSide<C.b_along_rows>;

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int lane;
  RingPosition<C.stages> issue;    // the next stage to multiply
  RingPosition<C.stages> release;  // the oldest one still in use
  uint32_t writer_empty;           // of GiveBack
  uint32_t lane_offset;
  uint32_t rows_units;  // this warpgroup's rows of stage 0, in units of 16 bytes
  Sum<C> (&result)[C.result_regs()];

  __device__ GroupMath(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp, int lane,
                       Sum<C> (&result)[C.result_regs()])
      : smem(smem),
        place(place),
        lane(lane),
        writer_empty(ptx::MapToRank(smem.Empty(0),
                                    place.Writer(lane < ClusterPlace<C>::kWriters ? lane : 0))),
        lane_offset(__shfl_sync(0xffffffff, lane * 16, lane)),
        rows_units(Weights::Units((smem.Rows(0) + warp / 4 % C.groups * 64 * kRowBytes) / 16)),
        result(result) {}

  // The stage at `issue` by `kCols` columns.
  template <int kCols, int kBlocks>
  __device__ __forceinline__ void Issue() {
    constexpr int kBytesAtOnce = 32;  // of k, by one instruction
    auto& sums = reinterpret_cast<Sum<C>(&)[kCols / 2]>(result[0]);
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
    const uint32_t rows = rows_units + issue.stage * (C.stage_bytes() / 16);
    const uint32_t cols =
        (smem.Rows(0) + kBlocks * C.row_bytes()) / 16 + issue.stage * (C.stage_bytes() / 16);
    ptx::WgmmaFence();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kRowBytes / kBytesAtOnce; ++i) {
        const int k = i * (kBytesAtOnce / 16);
        DirectWgmma<C.mma, kCols, C.b_along_rows>::Multiply(
            sums, Weights::Descriptor(rows + block * (C.row_bytes() / 16) + i * Weights::kStep),
            ptx::KMajorDescriptor(cols + block * (T.col_bytes() / 16) + k), true);
      }
    }
    ptx::WgmmaCommit();
    issue.Advance();
  }
  __device__ __forceinline__ void Release() {
    GiveBack<C>(smem, place, smem.Empty(release.stage), lane, lane_offset, writer_empty);
    release.Advance();
  }
  // A tile of `stages`, at least one, by `kCols` columns.
  template <int kCols, int kBlocks>
  __device__ __forceinline__ void Run(int stages) {
    auto& sums = reinterpret_cast<Sum<C>(&)[kCols / 2]>(result[0]);
    // Zeros, and not a first product that overwrites: ptxas would serialise all of them, since the
    // store leaves other values in the registers.
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i) sums[i] = 0;
    ptx::Pin(sums);
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      Issue<kCols, kBlocks>();
      ptx::WgmmaWait<1>();
      if (i > 0) Release();
    }
    ptx::WgmmaWait<0>();
    ptx::Pin(sums);
    Release();
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

}  // namespace gemmd::kernels::cuda
