// A few rows between a pair's, multiplied with it: they are WGMMA's columns, and the stage's
// weights, which a wide tile has as its columns, are the rows. So weights that are there anyway are
// read once, where a tile of those rows alone would ask L2 for all of them again.
//
// Each CTA has all of a rest's rows and half of the weights: an instruction reads its 64 rows of
// the weights from shared memory for as many columns as there are.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_group_tile.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_turns.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gate_finish.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kRestBytes = kRestRows * kRowBytes;  // of a k block
static_assert(kMostRest == kRestRows && kRestRows == 2 * kRowsABox);

// As a tile of its own: what stores it.
constexpr GemmConfig RestOf(const GemmConfig& wide) {
  GemmConfig rest;
  rest.family = GemmFamily::kSkinny;
  rest.rows = wide.block_n() / 2;
  rest.cols = kRestRows;
  rest.groups = wide.groups;
  rest.stages = wide.stages;
  rest.ragged = wide.ragged;
  rest.gates = wide.gates;
  rest.shares_ring = true;
  rest.takes_rest = true;
  return rest;
}

// The rest's rows of each stage, behind everything else.
template <GemmConfig W>
struct RestRing {
  using Notes = TurnNotes<W, GroupWalk<W, PairedTiles<W>>>;
  // In front of them the largest magnitudes that two CTAs tell each other: RestGate.
  static constexpr uint32_t kMaxima = Notes::kAt + Notes::kBytes;
  static constexpr uint32_t kMaximaBytes = W.gates ? 2 * kRestRows * 8 : 0;
  static constexpr uint32_t kAt = (kMaxima + kMaximaBytes + 1023) / 1024 * 1024;
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
  static constexpr int kResults = kRestRows / 2;
  static_assert(kRest.result_regs() == kResults && Base::kSubs == 2 && Base::kRuns == 1);

  uint32_t rest_rows;    // this warpgroup's 64 of the weights' rows in stage 0, as cols_units
  uint32_t rest_scales;  // where this thread's of A's scales begin in stage 0
  bool second;           // it has the second of the weights' two scales
  float (&rest)[kResults];

  // `rank`: of the CTA, which has that half of the weights, or of the gates and of their ups.
  __device__ RestMath(const SmemLayout<W>& smem, const ClusterPlace<W>& place, int warp, int lane,
                      float (&result)[Base::kResults], float (&rest)[kResults])
      : Base(smem, place, warp, lane, result), rest(rest) {
    const int rank = place.rank;
    rest_rows =
        cols_units + (W.gates ? group * 128 + rank * 64 : rank * 128 + group * 64) * (kBlockK / 16);
    rest_scales = smem.AScales(0) + lane % 4 * 2 * 4;
    second = (W.gates ? group : rank) != 0;
  }

  template <int kCols>
  __device__ __forceinline__ void MultiplyRest(float (&sums)[kCols / 2], int stage) const {
    constexpr uint32_t kRestUnits = (RestRing<W>::kAt - W.row_bytes()) / 16;  // behind cols_units
    const uint32_t rows = rest_rows + stage * (W.stage_bytes() / 16);
    const uint32_t cols = cols_units + kRestUnits + stage * (kRestBytes / 16);
    ptx::Pin(sums);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kBlockK / 32; ++i) {
      ptx::Wgmma<kCols>::Multiply(sums, ptx::KMajorDescriptor(rows + i * 2),
                                  ptx::KMajorDescriptor(cols + i * 2), i != 0);
    }
    ptx::WgmmaCommit();
  }

  // `steps` k blocks, of `kCols` of the rest's columns.
  template <int kCols>
  __device__ __forceinline__ void RunAll(int steps) {
    constexpr int kSums = kCols / 2;
    this->Clear();
#pragma unroll
    for (int i = 0; i < kResults; ++i) rest[i] = 0.0f;
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
      float sums[kSums];
      MultiplyRest<kCols>(sums, stage);
      // As a skinny tile's: two scales for each chunk of columns.
      float a[kCols / 4];
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) {
        a[2 * j] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4);
        a[2 * j + 1] = ptx::LoadShared(rest_scales + of_stage + j * 8 * 4 + 4);
      }
      const float b = ptx::LoadShared(b_scales + of_stage + (second ? 4 : 0));
      issue.Advance();
      ptx::WgmmaWait<0>();
      ptx::Pin(sums);
      GiveBack<W>(this->smem, this->place, this->smem.Empty(stage), lane, this->lane_offset,
                  this->writer_empty);
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) {
        const float left = a[2 * j] * b, right = a[2 * j + 1] * b;
        rest[4 * j] += sums[4 * j] * left;
        rest[4 * j + 1] += sums[4 * j + 1] * right;
        rest[4 * j + 2] += sums[4 * j + 2] * left;
        rest[4 * j + 3] += sums[4 * j + 3] * right;
      }
    } while (--steps > 0);
  }
};

}  // namespace gemmd::kernels::cuda
