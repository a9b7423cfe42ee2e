// A few rows behind a wide tile's own, multiplied with it: they are WGMMA's columns, and the
// stage's weights, which the wide tile has as its columns, are the rows. So weights that are there
// anyway are read once, where a tile of those rows alone would ask L2 for all of them again.
//
// Of a pair's rows each CTA has half: those of a wide tile, and kRestRows behind them.

#ifndef GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_
#define GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_

#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/wgmma_registers.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_group_tile.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_turns.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gate_finish.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kRestBytes = kRestRows * kRowBytes;  // of a k block
static_assert(kMostRest == 2 * kRestRows && kRestRows == kRowsABox && kRestRows == 16);

// As a tile of its own: what stores it.
constexpr GemmConfig RestOf(const GemmConfig& wide) {
  GemmConfig rest;
  rest.family = GemmFamily::kSkinny;
  rest.rows = wide.block_n();
  rest.cols = kRestRows;
  rest.groups = wide.groups;
  rest.stages = wide.stages;
  rest.ragged = wide.ragged;
  rest.gates = wide.gates;
  rest.shares_ring = true;
  return rest;
}

// The rest's rows of each stage, behind everything else.
template <GemmConfig W>
struct RestRing {
  using Notes = TurnNotes<W, GroupWalk<W, PairedTiles<W>>>;
  static constexpr uint32_t kAt = (Notes::kAt + Notes::kBytes + 1023) / 1024 * 1024;
  static constexpr uint32_t kEnd = kAt + W.stages * kRestBytes;

  static __device__ __forceinline__ uint32_t Of(const SmemLayout<W>& smem, int stage) {
    return smem.base + kAt + stage * kRestBytes;
  }
};

// A wide tile's products with those of its rest. Registers are scarce here: what can be made from
// others is made each time.
template <GemmConfig W>
struct RestMath : Math<W> {
  using Base = Math<W>;
  using Base::b_scales;
  using Base::cols_units;
  using Base::group;
  using Base::issue;
  using Base::lane;
  static constexpr GemmConfig kRest = RestOf(W);
  static constexpr int kSums = kRestRows / 2;  // of one of two chains of 64 of the weights' rows
  static_assert(kRest.result_regs() == 2 * kSums && Base::kSubs == 2 && Base::kRuns == 1);

  static constexpr int kSteps = kBlockK / 32;

  uint32_t weights;      // where this lane's of the weights begin in stage 0, for ldmatrix
  uint32_t rest_scales;  // where this thread's of A's scales begin there
  float (&rest)[2 * kSums];

  __device__ RestMath(const SmemLayout<W>& smem, const ClusterPlace<W>& place, int warp, int lane,
                      float (&result)[Base::kResults], float (&rest)[2 * kSums])
      : Base(smem, place, warp, lane, result), rest(rest) {
    // Of the weights a warpgroup has 128 rows in a piece, or 64 gates and their ups; rows are
    // swizzled.
    const int row = group * (W.gates ? 64 : 128) + warp % 4 * 16 + lane % 16;
    weights = smem.Cols(0) + row * kBlockK + ((lane / 16 ^ lane % 8) << 4);
    rest_scales = smem.AScales(0) + (W.block_m() + lane % 4 * 2) * 4;
  }

  // By registers: 64 rows of the weights from shared memory take WGMMA as long as 64 columns do. One
  // chain behind the other, since no more registers are left.
  template <int kChain>
  __device__ __forceinline__ void MultiplyRest(float (&sums)[kSums], int stage) const {
    constexpr int kChainRows = W.gates ? 128 : 64;  // from one chain's of the weights to the next's
    constexpr uint32_t kRestUnits = (RestRing<W>::kAt - W.row_bytes()) / 16;  // behind cols_units
    const uint32_t from = weights + stage * W.stage_bytes() + kChain * kChainRows * kBlockK;
    const uint32_t cols = cols_units + kRestUnits + stage * (kRestBytes / 16);
    uint32_t rows[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) ptx::LdMatrix4(from ^ i << 5, rows[i]);
    ptx::Pin(sums);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      ptx::WgmmaOfRegisters16(sums, rows[i], ptx::KMajorDescriptor(cols + i * 2), i != 0);
    }
    ptx::WgmmaCommit();
  }

  // As a skinny tile's: two scales for each chunk of columns.
  template <int kChain>
  __device__ __forceinline__ void PromoteRest(const float (&sums)[kSums],
                                              const float (&a)[kSums / 2], float b) const {
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float left = a[2 * j] * b, right = a[2 * j + 1] * b;
      float* const to = rest + kChain * kSums + 4 * j;
      to[0] += sums[4 * j] * left;
      to[1] += sums[4 * j + 1] * right;
      to[2] += sums[4 * j + 2] * left;
      to[3] += sums[4 * j + 3] * right;
    }
  }

  __device__ __forceinline__ void RunAll(int steps) {
    this->Clear();
#pragma unroll
    for (int i = 0; i < 2 * kSums; ++i) rest[i] = 0.0f;
    float accumulators[Base::kAccumulators];
    this->WaitFull();
    typename Base::Scales scales = this->template LoadScales<0>(issue);
#pragma unroll 1
    while (true) {
      const int stage = issue.stage;
      const uint32_t of_stage = stage * W.scale_bytes();
      this->template Multiply<0>(accumulators);
      const float upper_b = scales.b[0];  // of the first 128 of the weights' rows
      const float lower_b = ptx::LoadShared(b_scales + of_stage + 4);
      this->Finish(accumulators);
      this->template Promote<0, kBlockK>(accumulators, scales);
      this->template Multiply<1>(accumulators);
      scales.b[0] = lower_b;
      this->Finish(accumulators);
      this->template Promote<1, kBlockK>(accumulators, scales);
      float sums[kSums];
      MultiplyRest<0>(sums, stage);
      float a[kSums / 2];
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {
        a[2 * j] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4);
        a[2 * j + 1] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4 + 4);
      }
      const float own_b = group == 0 ? upper_b : lower_b;
      ptx::WgmmaWait<0>();
      ptx::Pin(sums);
      PromoteRest<0>(sums, a, W.gates ? upper_b : own_b);
      MultiplyRest<1>(sums, stage);
      issue.Advance();
      const bool more = --steps > 0;
      if (more) {
        this->WaitFull();
        scales = this->template LoadScales<0>(issue);
      }
      ptx::WgmmaWait<0>();
      ptx::Pin(sums);
      GiveBack<W>(this->smem, this->place, this->smem.Empty(stage), lane, this->lane_offset,
                  this->writer_empty);
      PromoteRest<1>(sums, a, W.gates ? lower_b : own_b);
      if (!more) break;
    }
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_
