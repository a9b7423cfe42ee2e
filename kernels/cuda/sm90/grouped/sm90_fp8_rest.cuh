// A few rows behind a wide tile's own, multiplied with it: they are WGMMA's columns, and the
// stage's weights, which the wide tile has as its columns, are the rows. So weights that are there
// anyway are read once, where a tile of those rows alone would ask L2 for all of them again.
//
// Of a pair's rows each CTA has half: those of a wide tile, and kRestRows behind them.

#ifndef GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_
#define GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_

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

  uint32_t rest_scales;  // where this thread's of A's scales begin in stage 0
  float (&rest)[2 * kSums];

  __device__ RestMath(const SmemLayout<W>& smem, const ClusterPlace<W>& place, int warp, int lane,
                      float (&result)[Base::kResults], float (&rest)[2 * kSums])
      : Base(smem, place, warp, lane, result), rest(rest) {
    rest_scales = smem.AScales(0) + (W.block_m() + lane % 4 * 2) * 4;
  }

  // Of the weights a warpgroup has 128 rows in a piece, or 64 gates and their ups.
  __device__ __forceinline__ void MultiplyRest(float (&upper)[kSums], float (&lower)[kSums],
                                               int stage) const {
    constexpr int kGroupRows = W.gates ? 64 : 128, kChainRows = W.gates ? 128 : 64;
    constexpr uint32_t kRestUnits = (RestRing<W>::kAt - W.row_bytes()) / 16;  // behind cols_units
    const uint32_t rows =
        cols_units + stage * (W.stage_bytes() / 16) + group * (kGroupRows * kBlockK / 16);
    const uint32_t cols = cols_units + kRestUnits + stage * (kRestBytes / 16);
    ptx::Pin(upper);
    ptx::Pin(lower);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kBlockK / 32; ++i) {
      const uint64_t columns = ptx::KMajorDescriptor(cols + i * 2);
      ptx::Wgmma<kRestRows>::Multiply(upper, ptx::KMajorDescriptor(rows + i * 2), columns, i != 0);
      ptx::Wgmma<kRestRows>::Multiply(
          lower, ptx::KMajorDescriptor(rows + kChainRows * kBlockK / 16 + i * 2), columns, i != 0);
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
#pragma unroll 1
    do {
      const int stage = issue.stage;
      const uint32_t of_stage = stage * W.scale_bytes();
      this->WaitFull();
      this->template Multiply<0>(accumulators);
      typename Base::Scales scales = this->template LoadScales<0>(issue);
      this->Finish(accumulators);
      this->template Promote<0, kBlockK>(accumulators, scales);
      this->template Multiply<1>(accumulators);
      scales.b[0] = ptx::LoadShared(b_scales + of_stage + 4);  // of the second 128 rows
      this->Finish(accumulators);
      this->template Promote<1, kBlockK>(accumulators, scales);
      float upper[kSums], lower[kSums];
      MultiplyRest(upper, lower, stage);
      float a[kSums / 2];
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {
        a[2 * j] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4);
        a[2 * j + 1] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4 + 4);
      }
      const uint32_t b = b_scales + of_stage + (W.gates ? 0 : group * 4);
      const float upper_b = ptx::LoadShared(b);
      const float lower_b = W.gates ? ptx::LoadShared(b + 4) : upper_b;
      issue.Advance();
      ptx::WgmmaWait<0>();
      ptx::Pin(upper);
      ptx::Pin(lower);
      GiveBack<W>(this->smem, this->place, this->smem.Empty(stage), lane, this->lane_offset,
                  this->writer_empty);
      PromoteRest<0>(upper, a, upper_b);
      PromoteRest<1>(lower, a, lower_b);
    } while (--steps > 0);
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_GROUPED_SM90_FP8_REST_CUH_
