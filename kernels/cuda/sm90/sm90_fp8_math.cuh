// A math warpgroup: WGMMA over one k block at a time into fresh accumulators, then promotion into
// the result with the block's scales. FP8 accumulators keep about 14 bits, so no longer chain than
// 128 is left in them; INT8's are exact, but the next block has other scales.

#pragma once

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"

namespace gemmd::kernels::cuda {

constexpr int LeastOf(int x, int y) { return x < y ? x : y; }

// A chain's accumulators, and one of them as FP32.
template <Mma kMma, int N>
struct Chain {
  using Sum = float;
  using Wgmma = ptx::Wgmma<N>;
  static __device__ __forceinline__ float Value(float sum) { return sum; }
};
template <int N>
struct Chain<Mma::kF32, N> : Chain<Mma::kFp8Row, N> {
  using Wgmma = ptx::WgmmaBf16<N>;
};
template <int N>
struct Chain<Mma::kI8Block, N> {
  using Sum = int;
  using Wgmma = ptx::WgmmaS8<N>;
  static __device__ __forceinline__ float Value(int sum) { return static_cast<float>(sum); }
};

template <GemmConfig C>
struct Math {
  // Chains of one k block: sub-tiles of 64 rows, or of a gate's columns.
  static constexpr int kSubs = C.row_subs() * C.col_subs();
  static constexpr int kAccumulators = C.accumulator_regs();
  static constexpr int kResults = C.result_regs();
  using Products = Chain<C.mma, C.mma_cols()>;
  using Sums = typename Products::Sum;

  static_assert(!C.double_accumulators() || kSubs == 1, "the pipelined loop has one chain a block");

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int group;
  int lane;
  uint32_t rows_units;  // this warpgroup's rows and all columns of stage 0, in units of 16 bytes
  uint32_t cols_units;
  uint32_t col_block =
      C.col_bytes() / 16;  // from one k block's columns to the next one's, likewise
  uint32_t a_scales;       // where this thread's scales of stage 0 begin
  uint32_t b_scales;
  BlockPosition<C> issue;    // the next k block to multiply
  BlockPosition<C> release;  // the oldest one still in use
  uint32_t writer_empty;     // stage 0's empty barrier in the CTA that this lane tells, if it does
  // 0 for lane 0, which alone uses it. Without it ptxas takes the barrier's address to the uniform
  // datapath, and has all lanes vote on whether to compute it, between a chain and its promotion.
  uint32_t lane_offset;
  uint32_t zero;  // is 0, which ptxas cannot know; by shuffle, else it is read each time
  float (&result)[kResults];

  // A chain's scales, in registers before its products are there. Tiled: A's for the thread's two
  // rows, B's for each run of columns. Skinny: A's for the thread's pairs of columns, B's for the
  // rows.
  static constexpr int kRun = C.b_scale_run();
  static constexpr int kOwnRuns = C.splits_cols && !C.gates ? C.b_scale_count() / C.groups : 0;
  static constexpr int kRuns = kOwnRuns > 0 ? kOwnRuns : C.b_scale_count() / C.col_subs();
  static constexpr int kChunks = C.mma_cols() / 8;
  struct Scales {
    float2 a[C.skinny() ? kChunks : 1];
    float b[kRuns];
  };

  __device__ Math(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp, int lane,
                  float (&result)[kResults])
      : smem(smem),
        place(place),
        group(warp / 4 % C.groups),
        lane(lane),
        writer_empty(ptx::MapToRank(smem.Empty(0),
                                    place.Writer(lane < ClusterPlace<C>::kWriters ? lane : 0))),
        lane_offset(__shfl_sync(0xffffffff, lane * 16, lane)),
        zero(__shfl_sync(0xffffffff, blockIdx.z, 0)),
        result(result) {
    const int first_block = C.k_groups == 1 ? 0 : warp / 4 / C.groups * C.blocks_of_group();
    const int row0 = C.splits_cols ? 0 : group * C.row_subs() * 64;
    const int col0 = C.splits_cols ? group * C.own_cols() : 0;
    rows_units = (smem.Rows(0) + first_block * C.row_bytes() + row0 * kBlockK) / 16;
    cols_units = (smem.Cols(0) + first_block * C.col_bytes() + col0 * kBlockK) / 16;
    b_scales = smem.BScales(0) + (first_block * C.b_scale_count() + group * kOwnRuns) * 4;
    a_scales = smem.AScales(0) + first_block * C.a_scale_bytes() +
               (C.skinny() ? lane % 4 * 2 : row0 + warp % 4 * 16 + lane / 4) * 4;
  }

  __device__ __forceinline__ void WaitFull() const {
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
  }

  // This warp has read everything of the oldest k block, once `after` is there: the barrier's
  // address depends on it, though it is 0.
  __device__ __forceinline__ void Release(uint32_t after = 0) {
    if (!release.EndsStage()) {
      release.Advance();
      return;
    }
    const uint32_t empty = smem.Empty(release.stage) + after;
    GiveBack<C>(smem, place, empty, lane, lane_offset, writer_empty);
    release.Advance();
  }

  // Issues sub-tile `kSub` of the k block at `issue`.
  template <int kSub>
  __device__ __forceinline__ void Multiply(Sums (&accumulators)[kAccumulators]) const {
    constexpr int kRowSub = C.col_subs() == 1 ? kSub : 0, kColSub = kSub - kRowSub;
    const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
    const uint32_t rows =
        rows_units + stage + (issue.block * C.row_bytes() + kRowSub * 64 * kBlockK) / 16;
    const uint32_t cols =
        cols_units + stage + issue.block * col_block + kColSub * C.mma_cols() * kBlockK / 16;
    ptx::Pin(accumulators);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kBlockK / 32; ++i) {
      Products::Wgmma::Multiply(accumulators, ptx::KMajorDescriptor(rows + i * 2),
                                ptx::KMajorDescriptor(cols + i * 2), i != 0);
    }
    ptx::WgmmaCommit();
  }

  // Of sub-tile `kSub` of the k block at `at`.
  template <int kSub>
  __device__ __forceinline__ Scales LoadScales(const BlockPosition<C>& at) const {
    Scales scales;
    const uint32_t a = a_scales + at.stage * C.scale_bytes() + at.block * C.a_scale_bytes();
    const uint32_t b =
        b_scales + at.stage * C.scale_bytes() +
        (at.block * C.b_scale_count() + (C.gates || C.col_subs() > 1 ? kSub : 0)) * 4;
    constexpr int kRowSub = C.col_subs() == 1 ? kSub : 0;
    if constexpr (C.skinny()) {
      scales.b[0] = ptx::LoadShared(b);
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        if constexpr (C.ragged) {  // they lie at a multiple of 4 bytes
          scales.a[j] =
              make_float2(ptx::LoadShared(a + j * 8 * 4), ptx::LoadShared(a + j * 8 * 4 + 4));
        } else {
          scales.a[j] = ptx::LoadShared2(a + j * 8 * 4);
        }
      }
    } else {
      scales.a[0].x = ptx::LoadShared(a + kRowSub * 64 * 4);
      scales.a[0].y = ptx::LoadShared(a + (kRowSub * 64 + 8) * 4);
#pragma unroll
      for (int j = 0; j < kRuns; ++j) scales.b[j] = ptx::LoadShared(b + j * 4);
    }
    return scales;
  }

  // result += accumulators * a_scale * b_scale. The tile's first run has `kFirst` columns.
  template <int kSub, int kFirst>
  __device__ __forceinline__ void Promote(const Sums (&accumulators)[kAccumulators],
                                          const Scales& scales) const {
    constexpr int kBase = kSub * kAccumulators;
    float x = 0, y = 0;
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      if constexpr (C.skinny()) {  // left and right column
        x = scales.a[j].x * scales.b[0];
        y = scales.a[j].y * scales.b[0];
      } else if (j == 0 || (j * 8 >= kFirst && (j * 8 - kFirst) % kRun == 0)) {
        const float b = scales.b[j == 0 ? 0 : (j * 8 - kFirst) / kRun + 1];
        x = scales.a[0].x * b;  // upper and lower row
        y = scales.a[0].y * b;
      }
      result[kBase + 4 * j + 0] += Products::Value(accumulators[4 * j + 0]) * x;
      result[kBase + 4 * j + 1] += Products::Value(accumulators[4 * j + 1]) * (C.skinny() ? y : x);
      result[kBase + 4 * j + 2] += Products::Value(accumulators[4 * j + 2]) * (C.skinny() ? x : y);
      result[kBase + 4 * j + 3] += Products::Value(accumulators[4 * j + 3]) * y;
    }
  }

  __device__ __forceinline__ void Clear() const {
#pragma unroll
    for (int i = 0; i < kResults; ++i) result[i] = 0.0f;
  }

  // `steps` k blocks of `tile`, at least one, added up into `result`.
  __device__ __forceinline__ void Run(int steps, const Tile& tile) {
    Clear();
    if constexpr (C.double_accumulators()) {
      RunAlternating(steps);
    } else if constexpr (C.skinny()) {
      RunSingle<C.cols>(steps);
    } else {
      RunByFirst<LeastOf(C.mma_cols(), kRun)>(steps, kRun - tile.col0 % kRun);
    }
  }

  // A loop for each length that a tile's first run may have: every run's scale is then made once a
  // k block, and no column has to look for its own.
  template <int kFirst>
  __device__ __forceinline__ void RunByFirst(int steps, int first) {
    constexpr int kLess = kFirst - C.tile_step();
    if constexpr (kLess > 0) {
      if (first < kFirst) return RunByFirst<kLess>(steps, first);
    }
    RunSingle<kFirst>(steps);
  }

  // One set of accumulators: the other warpgroups keep the tensor cores busy meanwhile. Scales, if
  // they are few, are loaded a unit ahead, so that none is waited for between a unit's
  // instructions.
  static constexpr bool kScalesAhead = !C.skinny() && (kRuns <= 2 || kRun == kBlockK);
  // A skinny tile has two scales for each chunk of columns. Made behind a unit's products, those of
  // a wide tile take longer than its FFMAs.
  static constexpr bool kMakesScales =
      C.skinny() && !C.ragged && !C.double_accumulators() && C.cols > 64;
  // Chunks whose scales are made while the unit multiplies: as many as registers are left for. A
  // chunk that is promoted gives up registers for the scales of a later one.
  static constexpr int kMadeAhead =
      kMakesScales ? LeastOf(kChunks, (C.math_registers() - kResults - kAccumulators - 24) / 2) : 1;

  template <int kFirst>
  __device__ __forceinline__ void RunSingle(int steps) {
    static_assert(kSubs <= 2);
    if constexpr (kMakesScales) return RunMakingScales(steps);
    Sums accumulators[kAccumulators];
    WaitFull();
    Scales scales;
    if constexpr (kScalesAhead) scales = LoadScales<0>(issue);
    for (int i = 0; i < steps; ++i) {
      const BlockPosition<C> at = issue;
      Multiply<0>(accumulators);
      if constexpr (!kScalesAhead) scales = LoadScales<0>(at);
      if constexpr (kSubs == 2) {
        const Scales next = LoadScales<1>(at);
        Finish(accumulators);
        Promote<0, kFirst>(accumulators, scales);
        Multiply<1>(accumulators);
        scales = next;
      }
      issue.Advance();
      Scales next = scales;
      if (i + 1 < steps) {
        WaitFull();
        if constexpr (kScalesAhead) next = LoadScales<0>(issue);
      }
      Finish(accumulators);
      Release();
      Promote<kSubs - 1, kFirst>(accumulators, scales);
      scales = next;
    }
  }
  __device__ __forceinline__ void RunMakingScales(int steps) {
    static_assert(kSubs == 1 && kMadeAhead >= 4);
    Sums accumulators[kAccumulators];
    float scales[2 * kMadeAhead];  // of chunk j, at j % kMadeAhead: left and right column
    WaitFull();
    for (int i = 0; i < steps; ++i) {
      const BlockPosition<C> at = issue;
      const uint32_t a = a_scales + at.stage * C.scale_bytes() + at.block * C.a_scale_bytes();
      Multiply<0>(accumulators);
      const float b = ptx::LoadShared(b_scales + at.stage * C.scale_bytes() + at.block * 4);
#pragma unroll
      for (int j = 0; j < kMadeAhead; ++j) MakeScales(scales, j, a, b);
      ptx::Pin(scales);
      issue.Advance();
      if (i + 1 < steps) WaitFull();
      Finish(accumulators);
      if constexpr (kMadeAhead == kChunks) Release();
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        PromoteChunk(accumulators, scales, j);
        if (j + kMadeAhead < kChunks) MakeScales(scales, j + kMadeAhead, a, b);
      }
      if constexpr (kMadeAhead < kChunks) Release();
    }
  }
  __device__ __forceinline__ void MakeScales(float (&scales)[2 * kMadeAhead], int chunk, uint32_t a,
                                             float b) const {
    const float2 columns = ptx::LoadShared2(a + chunk * 8 * 4);
    scales[chunk % kMadeAhead * 2] = columns.x * b;
    scales[chunk % kMadeAhead * 2 + 1] = columns.y * b;
  }
  // One FFMA behind the other by the same scale, which the second finds cached.
  __device__ __forceinline__ void PromoteChunk(const Sums (&accumulators)[kAccumulators],
                                               const float (&scales)[2 * kMadeAhead],
                                               int chunk) const {
    const float left = scales[chunk % kMadeAhead * 2];
    const float right = scales[chunk % kMadeAhead * 2 + 1];
    result[4 * chunk + 0] += Products::Value(accumulators[4 * chunk + 0]) * left;
    result[4 * chunk + 2] += Products::Value(accumulators[4 * chunk + 2]) * left;
    result[4 * chunk + 1] += Products::Value(accumulators[4 * chunk + 1]) * right;
    result[4 * chunk + 3] += Products::Value(accumulators[4 * chunk + 3]) * right;
  }
  __device__ __forceinline__ void Finish(Sums (&accumulators)[kAccumulators]) const {
    ptx::WgmmaWait<0>();
    ptx::Pin(accumulators);
  }

  __device__ __forceinline__ void Issue(Sums (&accumulators)[kAccumulators]) {
    WaitFull();
    Multiply<0>(accumulators);
    issue.Advance();
  }
  template <int kPending>
  __device__ __forceinline__ void Retire(Sums (&accumulators)[kAccumulators]) {
    const Scales scales = LoadScales<0>(release);
    // An arrive waits for no load on its way to a register. Where the shared-memory pipe is busy
    // with stores, and but one chain lies between, the next scales would overwrite what the load
    // has yet to read. Loads return in order, so the last stands for all.
    const uint32_t loaded = __float_as_uint(scales.a[C.skinny() ? kChunks - 1 : 0].y) & zero;
    ptx::WgmmaWait<kPending>();
    ptx::Pin(accumulators);
    Release(loaded);
    Promote<0, C.cols>(accumulators, scales);
  }

  // Two sets, one chain a k block: the next block multiplies while this one is promoted.
  __device__ __forceinline__ void RunAlternating(int steps) {
    Sums even[kAccumulators], odd[kAccumulators];
    Issue(even);
    int i = 0;
    for (; i + 2 < steps; i += 2) {
      Issue(odd);
      Retire<1>(even);
      Issue(even);
      Retire<1>(odd);
    }
    if (i + 1 < steps) {
      Issue(odd);
      Retire<1>(even);
      Retire<0>(odd);
    } else {
      Retire<0>(even);
    }
  }
};

}  // namespace gemmd::kernels::cuda
