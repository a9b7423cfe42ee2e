// A math warpgroup of a gradient in BF16 or FP16: as sm90_direct_math.cuh, over as many k blocks as
// a group has, which may be none, and of the last one a part.

#pragma once

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_math.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"
#include "kernels/cuda/sm90/sm90_gradient.cuh"

namespace gemmd::kernels::cuda {

// `kAlongRows`: both operands lie along their rows, [k, rows], and not
// along k (sm90_along_rows.cuh).
template <GemmConfig C, bool kAlongRows>
struct DirectGradientMath {
  static_assert(C.groups == 2 && C.cols == 128 && C.k_blocks == 1 && C.k_groups == 1 &&
                C.element_bytes() == 2);
  static constexpr int kSubs = C.row_subs();
  static constexpr int kResults = C.result_regs();
  static constexpr int kSums = C.cols / 2;  // of a sub-tile
  static constexpr int kAtOnce = 16;        // of k, by one instruction
  using Side = DirectSide<kAlongRows>;

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int group;
  int thread;  // of the warpgroup
  int lane;
  uint32_t rows_units;  // this warpgroup's rows and all columns of stage 0, in units of 16 bytes
  uint32_t cols_units;
  RingPosition<C.stages> issue;    // the next k block to multiply
  RingPosition<C.stages> release;  // the oldest one still in use
  uint32_t writer_empty;           // of GiveBack
  uint32_t lane_offset;
  float (&result)[kResults];

  __device__ DirectGradientMath(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp,
                                int lane, float (&result)[kResults])
      : smem(smem),
        place(place),
        group(warp / 4),
        thread(warp % 4 * 32 + lane),
        lane(lane),
        writer_empty(ptx::MapToRank(smem.Empty(0),
                                    place.Writer(lane < ClusterPlace<C>::kWriters ? lane : 0))),
        lane_offset(__shfl_sync(0xffffffff, lane * 16, lane)),
        result(result) {
    rows_units = Side::Units((smem.Rows(0) + group * kSubs * 64 * kRowBytes) / 16);
    cols_units = Side::Units(smem.Cols(0) / 16);
  }

  __device__ __forceinline__ void WaitFull() const {
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
  }

  __device__ __forceinline__ void Issue() {
    WaitFull();
    const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
    ptx::WgmmaFence();
#pragma unroll
    for (int sub = 0; sub < kSubs; ++sub) {
      auto& sums = reinterpret_cast<float(&)[kSums]>(result[sub * kSums]);
      const uint32_t rows = rows_units + stage + sub * (64 * kRowBytes / 16);
      const uint32_t cols = cols_units + stage;
#pragma unroll
      for (int i = 0; i < C.block_k() / kAtOnce; ++i) {
        DirectWgmma<C.mma, C.cols, kAlongRows, kAlongRows>::Multiply(
            sums, Side::Descriptor(rows + i * Side::kStep),
            Side::Descriptor(cols + i * Side::kStep), true);
      }
    }
    ptx::WgmmaCommit();
    issue.Advance();
  }

  // Zeroes what stands outside columns [begin, end) of the k block at `issue`: this warpgroup's
  // rows and its half of the tile's columns, which both multiply by.
  __device__ __forceinline__ void Mask(int begin, int end) const {
    const uint32_t stage = issue.stage * C.stage_bytes();
    const uint32_t rows = smem.Rows(0) + group * kSubs * 64 * kRowBytes + stage;
    const uint32_t cols = smem.Cols(0) + stage;
    if constexpr (kAlongRows) {
      // Whole lines of 128 bytes, one for each k: eight threads a line.
      static_assert(C.cols == 2 * kAlongRowsBox);
#pragma unroll 1
      for (int box = 0; box <= kSubs; ++box) {
        const uint32_t at =
            box < kSubs ? rows + box * kAlongRowsBoxBytes : cols + group * kAlongRowsBoxBytes;
#pragma unroll 1
        for (int k = end + thread / 8; k < C.block_k(); k += 16) {  // begin is 0
          ptx::StoreShared4(at + k * kRowBytes + thread % 8 * 16, make_float4(0, 0, 0, 0));
        }
      }
    } else {
      // Of 16 bytes of a row, number c lies at c ^ row % 8.
      constexpr int kEach = 8;  // elements of a unit
#pragma unroll 1
      for (int row = thread; row < kSubs * 64 + C.cols / 2; row += 128) {
        const int col = row - kSubs * 64 + group * (C.cols / 2);
        const uint32_t at = row < kSubs * 64 ? rows + row * kRowBytes : cols + col * kRowBytes;
#pragma unroll 1
        for (int unit = 0; unit < kRowBytes / 16; ++unit) {
          const int first = begin - unit * kEach, last = end - unit * kEach;
          if (first <= 0 && last >= kEach) continue;
          const uint32_t address = at + ((unit ^ row % 8) << 4);
          float4 v = ptx::LoadShared4(address);
          v.x = Kept(v.x, first, last);
          v.y = Kept(v.y, first - 2, last - 2);
          v.z = Kept(v.z, first - 4, last - 4);
          v.w = Kept(v.w, first - 6, last - 6);
          ptx::StoreShared4(address, v);
        }
      }
    }
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(kMaskedBarrier, C.math_threads());
  }
  // Of two elements those from `first` on and before `last`, the others 0.
  static __device__ __forceinline__ float Kept(float v, int first, int last) {
    const uint32_t left = first <= 0 && last >= 1 ? 0xffffu : 0u;
    const uint32_t right = first <= 1 && last >= 2 ? 0xffff0000u : 0u;
    return __uint_as_float(__float_as_uint(v) & (left | right));
  }

  __device__ __forceinline__ void Release() {
    GiveBack<C>(smem, place, smem.Empty(release.stage), lane, lane_offset, writer_empty);
    release.Advance();
  }

  // The run's k blocks, which may be none, added up into `result`.
  __device__ __forceinline__ void Run(const KRun& run) {
    const int steps = run.steps;
#pragma unroll
    for (int i = 0; i < kResults; ++i) result[i] = 0.0f;
    if (steps == 0) return;
    ptx::Pin(result);
    // Masked blocks begin a round each, so that the loop holds nothing but products.
#pragma unroll 1
    for (int step = 0; step < steps;) {
      const bool begins = step == 0 && run.head > 0, ends = step == steps - 1 && run.tail > 0;
      if (begins || ends) {
        WaitFull();
        Mask(begins ? run.head : 0, ends ? run.tail : C.block_k());
      }
      const int whole = ends || run.tail == 0 ? steps : steps - 1;
#pragma unroll 1
      for (; step < whole; ++step) {
        Issue();
        ptx::WgmmaWait<1>();
        if (step > 0) Release();
      }
    }
    ptx::WgmmaWait<0>();
    ptx::Pin(result);
    Release();
  }
};

}  // namespace gemmd::kernels::cuda
