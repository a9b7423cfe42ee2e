// A math warpgroup whose accumulators are the results: BF16, FP16 and INT8. One k block multiplies
// while the next is issued, and none is waited for but to give back its stage.

#pragma once

#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/along_rows/sm90_along_rows.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// `kRows`, `kCols`: that side lies along its rows, not along k.
template <Mma kMma, int N, bool kRows = false, bool kCols = false>
struct DirectWgmma;
template <int N>
struct DirectWgmma<Mma::kBf16, N> : ptx::WgmmaBf16<N> {};
template <int N>
struct DirectWgmma<Mma::kBf16, N, true, false> : ptx::WgmmaBf16Rows<N> {};
template <int N>
struct DirectWgmma<Mma::kBf16, N, false, true> : ptx::WgmmaBf16Cols<N> {};
template <int N>
struct DirectWgmma<Mma::kBf16, N, true, true> : ptx::WgmmaBf16Mn<N> {};
template <int N>
struct DirectWgmma<Mma::kF16, N> : ptx::WgmmaF16<N> {};
template <int N>
struct DirectWgmma<Mma::kF16, N, true, false> : ptx::WgmmaF16Rows<N> {};
template <int N>
struct DirectWgmma<Mma::kF16, N, false, true> : ptx::WgmmaF16Cols<N> {};
template <int N>
struct DirectWgmma<Mma::kF16, N, true, true> : ptx::WgmmaF16Mn<N> {};
template <int N>
struct DirectWgmma<Mma::kI8, N> : ptx::WgmmaS8<N> {};

// Of one side: what an instruction is told of a place in it, and from there to the next 32 bytes
// of k, in units of 16 bytes.
template <bool kAlongRows>
struct DirectSide {
  static constexpr int kStep = kAlongRows ? kAlongRowsStep : 32 / 16;

  static __device__ __forceinline__ uint32_t Units(uint32_t units) {
    if constexpr (kAlongRows) return AlongRowsUnits(units);
    return units;
  }
  static __device__ __forceinline__ uint64_t Descriptor(uint32_t units) {
    if constexpr (kAlongRows) return AlongRowsDescriptor(units);
    return ptx::KMajorDescriptor(units);
  }
};

template <GemmConfig C>
struct DirectMath {
  static constexpr int kSubs = C.row_subs();
  static constexpr int kSums = C.cols / 2;  // of a sub-tile
  static constexpr int kBytesAtOnce = 32;   // of k, by one instruction
  using Rows = DirectSide<C.rows_along()>;
  using Cols = DirectSide<C.cols_along()>;
  using Wgmma = DirectWgmma<C.mma, C.cols, C.rows_along(), C.cols_along()>;

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int lane;
  BlockPosition<C> issue;    // the next k block to multiply
  BlockPosition<C> release;  // the oldest one still in use
  uint32_t writer_empty;     // of GiveBack
  uint32_t lane_offset;
  uint32_t rows_units;  // this warpgroup's rows and all columns of stage 0, in units of 16 bytes
  uint32_t cols_units;
  Sum<C> (&result)[C.result_regs()];

  __device__ DirectMath(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp, int lane,
                        Sum<C> (&result)[C.result_regs()])
      : smem(smem),
        place(place),
        lane(lane),
        writer_empty(ptx::MapToRank(smem.Empty(0),
                                    place.Writer(lane < ClusterPlace<C>::kWriters ? lane : 0))),
        lane_offset(__shfl_sync(0xffffffff, lane * 16, lane)),
        result(result) {
    const int group = warp / 4 % C.groups;
    const int first_block = C.k_groups == 1 ? 0 : warp / 4 / C.groups * C.blocks_of_group();
    const int first_row = C.alternates ? 0 : group * kSubs * 64;
    rows_units =
        Rows::Units((smem.Rows(0) + first_block * C.row_bytes() + first_row * kRowBytes) / 16);
    cols_units = Cols::Units((smem.Cols(0) + first_block * C.col_bytes()) / 16);
  }

  // The k block at `issue`, of which the first one of a tile overwrites what was there.
  template <bool kFirst>
  __device__ __forceinline__ void Issue() {
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
    const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
    const uint32_t rows = rows_units + stage + issue.block * (C.row_bytes() / 16);
    const uint32_t cols = cols_units + stage + issue.block * (C.col_bytes() / 16);
    ptx::WgmmaFence();
#pragma unroll
    for (int sub = 0; sub < kSubs; ++sub) {
      auto& sums = reinterpret_cast<Sum<C>(&)[kSums]>(result[sub * kSums]);
#pragma unroll
      for (int i = 0; i < kRowBytes / kBytesAtOnce; ++i) {
        Wgmma::Multiply(sums,
                        Rows::Descriptor(rows + sub * (64 * kRowBytes / 16) + i * Rows::kStep),
                        Cols::Descriptor(cols + i * Cols::kStep), !kFirst || i != 0);
      }
    }
    ptx::WgmmaCommit();
    issue.Advance();
  }

  // This warp has read everything of the oldest k block.
  __device__ __forceinline__ void Release() {
    if (release.EndsStage()) {
      GiveBack<C>(smem, place, smem.Empty(release.stage), lane, lane_offset, writer_empty);
    }
    release.Advance();
  }

  __device__ __forceinline__ void Run(int steps, const Tile&) {
    Run(steps, [] {});
  }

  // The stages of a tile that another warpgroup multiplies. It must have waited for all of them
  // before the next is waited for: a barrier tells two rounds of the ring apart, not three.
  __device__ __forceinline__ void Skip(int stages) {
    issue.Skip(stages);
    release.Skip(stages);
  }

  __device__ __forceinline__ void Clear() const {
#pragma unroll
    for (int i = 0; i < C.result_regs(); ++i) result[i] = 0;
  }

  // `steps` k blocks of a tile, at least one, added up into `result`. `issued`: called when nothing
  // of the ring is to be waited for any more.
  template <class Issued>
  __device__ __forceinline__ void Run(int steps, const Issued& issued) {
    ptx::Pin(result);
    Issue<true>();
#pragma unroll 1
    for (int i = 1; i < steps; ++i) {
      Issue<false>();
      ptx::WgmmaWait<1>();
      Release();
    }
    issued();
    ptx::WgmmaWait<0>();
    ptx::Pin(result);
    Release();
  }
};

}  // namespace gemmd::kernels::cuda
