// A math warpgroup of a gradient: as sm90_fp8_math.cuh, with a scale for each column of the product
// as well. A thread loads its columns' scales once a k block, while the first sub-tile multiplies,
// and keeps them for both: a product is multiplied by its column's where it lies, and added to its
// result by its row's.

#pragma once

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/ptx/wgmma_fp8.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"
#include "kernels/cuda/sm90/sm90_gradient.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C, bool kAE5M2, bool kBE5M2>
struct GradientMath {
  static_assert(C.scales_columns && C.cols == 128 && C.k_blocks == 1 && C.k_groups == 1);
  static constexpr int kSubs = C.row_subs();
  static constexpr int kAccumulators = C.accumulator_regs();
  static constexpr int kResults = C.result_regs();
  static constexpr int kChunks = C.cols / 8;
  static_assert(kSubs <= 2 && C.groups == 2);

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int group;
  int thread;  // of the warpgroup
  int lane;
  uint32_t rows_units;  // this warpgroup's rows and all columns of stage 0, in units of 16 bytes
  uint32_t cols_units;
  uint32_t row_scales;  // where this thread's scales of stage 0 begin
  uint32_t col_scales;
  RingPosition<C.stages> issue;    // the next k block to multiply
  RingPosition<C.stages> release;  // the oldest one still in use
  uint32_t writer_empty;           // of GiveBack
  uint32_t lane_offset;
  float (&result)[kResults];

  __device__ GradientMath(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp,
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
    rows_units = (smem.Rows(0) + group * kSubs * 64 * kRowBytes) / 16;
    cols_units = smem.Cols(0) / 16;
    row_scales = smem.AScales(0) + (group * kSubs * 64 + warp % 4 * 16 + lane / 4) * 4;
    col_scales = smem.BScales(0) + lane % 4 * 2 * 4;
  }

  __device__ __forceinline__ void WaitFull() const {
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
  }

  template <int kSub>
  __device__ __forceinline__ void Multiply(float (&accumulators)[kAccumulators]) const {
    const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
    const uint32_t rows = rows_units + stage + kSub * 64 * kRowBytes / 16;
    const uint32_t cols = cols_units + stage;
    ptx::Pin(accumulators);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kBlockK / 32; ++i) {
      ptx::WgmmaFp8N128<kAE5M2, kBE5M2>::Multiply(accumulators, ptx::KMajorDescriptor(rows + i * 2),
                                                  ptx::KMajorDescriptor(cols + i * 2), i != 0);
    }
    ptx::WgmmaCommit();
  }

  // Zeroes what stands behind the first `columns` of the k block at `issue`: this warpgroup's rows
  // and its half of the tile's columns, which both multiply by. Of 16 bytes of a row, number c lies
  // at c ^ row % 8.
  __device__ __forceinline__ void Mask(int columns) const {
    const uint32_t stage = issue.stage * C.stage_bytes();
#pragma unroll 1
    for (int row = thread; row < kSubs * 64 + C.cols / 2; row += 128) {
      const int col = row - kSubs * 64 + group * (C.cols / 2);
      const uint32_t at = row < kSubs * 64 ? rows_units * 16 + stage + row * kRowBytes
                                           : cols_units * 16 + stage + col * kRowBytes;
#pragma unroll 1
      for (int unit = columns / 16; unit < kRowBytes / 16; ++unit) {
        const uint32_t address = at + ((unit ^ row % 8) << 4);
        const int kept = columns - unit * 16;  // bytes of this unit
        float4 v = make_float4(0, 0, 0, 0);
        if (kept > 0) {
          v = ptx::LoadShared4(address);
          v.x = Kept(v.x, kept);
          v.y = Kept(v.y, kept - 4);
          v.z = Kept(v.z, kept - 8);
          v.w = Kept(v.w, kept - 12);
        }
        ptx::StoreShared4(address, v);
      }
    }
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(kMaskedBarrier, C.math_threads());
  }
  // The first `bytes` of four, the others 0.
  static __device__ __forceinline__ float Kept(float v, int bytes) {
    const uint32_t mask = bytes <= 0 ? 0u : bytes >= 4 ? 0xffffffffu : (1u << (8 * bytes)) - 1;
    return __uint_as_float(__float_as_uint(v) & mask);
  }

  // Of one chunk, from the stage at `issue`.
  __device__ __forceinline__ void LoadColumns(float (&columns)[2 * kChunks], int chunk) const {
    const uint32_t at = col_scales + issue.stage * C.scale_bytes() + chunk * 8 * 4;
    const float2 pair = ptx::LoadShared2(at);
    columns[2 * chunk] = pair.x;
    columns[2 * chunk + 1] = pair.y;
  }
  // One chunk: times its columns' scales in place, so that no register is needed, then the rows'.
  template <int kSub>
  __device__ __forceinline__ void Promote(const float (&accumulators)[kAccumulators],
                                          const float (&columns)[2 * kChunks], int chunk,
                                          const float (&scale)[2]) const {
    const float* const a = accumulators + 4 * chunk;
    float* const r = result + kSub * kAccumulators + 4 * chunk;
    const float left = columns[2 * chunk], right = columns[2 * chunk + 1];
    r[0] += a[0] * left * scale[0];
    r[1] += a[1] * right * scale[0];
    r[2] += a[2] * left * scale[1];
    r[3] += a[3] * right * scale[1];
  }

  // The block at `issue`, whose stage is given back and the next waited for in the last of its
  // sub-tiles. While the tensor cores read shared memory a load waits for some 40 clocks: the next
  // block's column scales are loaded one by one as these are done with.
  template <int kSub>
  __device__ __forceinline__ void Block(float (&accumulators)[kAccumulators],
                                        float (&columns)[2 * kChunks], bool more) {
    constexpr bool kLast = kSub == kSubs - 1;
    const uint32_t rows = row_scales + issue.stage * C.scale_bytes() + kSub * 64 * 4;
    Multiply<kSub>(accumulators);
    __syncwarp();  // else ptxas puts what follows between the products, and the tensor cores wait
    float scale[] = {ptx::LoadShared(rows), ptx::LoadShared(rows + 8 * 4)};
    ptx::Pin(scale);  // loaded before the stage is given back
    if constexpr (kLast) {
      issue.Advance();
      if (more) WaitFull();
    }
    ptx::WgmmaWait<0>();
    ptx::Pin(accumulators);
    if constexpr (kLast) Release();
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      Promote<kSub>(accumulators, columns, j, scale);
      if constexpr (kLast) LoadColumns(columns, j);  // behind the last block: of no use
    }
    if constexpr (!kLast) Block<kSub + 1>(accumulators, columns, more);
  }
  __device__ __forceinline__ void Release() {
    GiveBack<C>(smem, place, smem.Empty(release.stage), lane, lane_offset, writer_empty);
    release.Advance();
  }

  // The run's k blocks, which may be none, added up into `result`.
  __device__ __forceinline__ void Run(const KRun& run) {
    const int steps = run.steps, tail = run.tail;
#pragma unroll
    for (int i = 0; i < kResults; ++i) result[i] = 0.0f;
    if (steps == 0) return;
    float accumulators[kAccumulators], columns[2 * kChunks];
    WaitFull();
#pragma unroll
    for (int j = 0; j < kChunks; ++j) LoadColumns(columns, j);
    // The masked block is a round of its own, so that the loop holds nothing but products.
    int whole = tail == 0 ? steps : steps - 1;
#pragma unroll 1
    for (int step = 0; step < steps;) {
      if (step == whole) {
        Mask(tail);
        whole = steps;
      }
#pragma unroll 1
      for (; step < whole; ++step) Block<0>(accumulators, columns, step + 1 < steps);
    }
  }
};

}  // namespace gemmd::kernels::cuda
