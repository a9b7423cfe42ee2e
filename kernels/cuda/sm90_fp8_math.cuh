// A math warpgroup: WGMMA over one k block at a time into fresh accumulators, then promotion into
// the result with the block's scales. FP8 accumulators keep about 14 bits, so no longer chain than
// 128 is left in them.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_MATH_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_MATH_CUH_

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
struct Math {
  static constexpr int kUnits = C.row_subs() * C.col_halves;  // WGMMA chains of one k block
  static constexpr int kAccumulators = C.accumulator_regs();
  static constexpr int kResults = C.result_regs();
  static_assert(!C.double_accumulators() || kUnits <= 2,
                "the pipelined loop alternates two chains");

  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int warp;  // in the warpgroup
  int lane;
  int group;
  RingPosition<C.stages> issue;    // the next k block to multiply
  RingPosition<C.stages> release;  // the oldest one still in use
  int scale_row;                   // tile's first row of B within its scale block
  float (&result)[kResults];

  __device__ __forceinline__ void WaitFull() const {
    if constexpr (C.multicast() > 1) {
      ptx::MbarrierWaitCluster(smem.Full(issue.stage), issue.parity);
    } else {
      ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
    }
  }

  // This warp has read everything of the oldest stage.
  __device__ __forceinline__ void Release() {
    __syncwarp();
    if constexpr (C.multicast() == 1) {
      if (lane == 0) ptx::MbarrierArrive(smem.Empty(release.stage));
    } else if (lane < ClusterPlace<C>::kWriters) {
      ptx::MbarrierArriveRemote(smem.Empty(release.stage), place.Writer(lane));
    }
    release.Advance();
  }

  // Issues unit `unit` of the k block at `issue`.
  template <int kUnit>
  __device__ __forceinline__ void Multiply(float (&accumulators)[kAccumulators]) const {
    constexpr int kSub = kUnit / C.col_halves;
    constexpr int kHalf = kUnit % C.col_halves;
    const int row = (group * C.row_subs() + kSub) * 64;
    const uint64_t rows = ptx::KMajorDescriptor(smem.Rows(issue.stage) + row * kBlockK);
    const uint64_t cols =
        ptx::KMajorDescriptor(smem.Cols(issue.stage) + kHalf * C.sub_cols() * kBlockK);
    ptx::Pin(accumulators);
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kBlockK / 32; ++i) {
      ptx::Wgmma<C.sub_cols()>::Multiply(accumulators, rows + i * 2, cols + i * 2, i != 0);
    }
    ptx::WgmmaCommit();
    ptx::Pin(accumulators);
  }

  // result += accumulators * a_scale * b_scale, for unit `unit` of the k block at `release`.
  template <int kUnit>
  __device__ __forceinline__ void Promote(float (&accumulators)[kAccumulators]) const {
    constexpr int kSub = kUnit / C.col_halves;
    constexpr int kHalf = kUnit % C.col_halves;
    constexpr int kFirst = kHalf * C.sub_cols();  // column of the tile
    constexpr int kBase = (kSub * C.cols + kFirst) / 2;
    const uint32_t a_scales = smem.AScales(release.stage);
    const uint32_t b_scales = smem.BScales(release.stage);
    const int row = (group * C.row_subs() + kSub) * 64;
    if constexpr (C.skinny()) {
      // Columns are rows of A: a scale each. The 64 rows are of one block of B.
      const float b = ptx::LoadShared(b_scales + (scale_row + row) / 128 * 4);
      float2 a[C.sub_cols() / 8];
#pragma unroll
      for (int j = 0; j < C.sub_cols() / 8; ++j) {
        a[j] = ptx::LoadShared2(a_scales + (kFirst + j * 8 + lane % 4 * 2) * 4);
      }
#pragma unroll
      for (int j = 0; j < C.sub_cols() / 8; ++j) {
        const float left = a[j].x * b;
        const float right = a[j].y * b;
        result[kBase + 4 * j + 0] += accumulators[4 * j + 0] * left;
        result[kBase + 4 * j + 1] += accumulators[4 * j + 1] * right;
        result[kBase + 4 * j + 2] += accumulators[4 * j + 2] * left;
        result[kBase + 4 * j + 3] += accumulators[4 * j + 3] * right;
      }
    } else {
      const float a_up = ptx::LoadShared(a_scales + (row + warp * 16 + lane / 4) * 4);
      const float a_down = ptx::LoadShared(a_scales + (row + warp * 16 + lane / 4 + 8) * 4);
      constexpr int kScales = C.b_scale_rows();
      float up[kScales], down[kScales];
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        const float b = ptx::LoadShared(b_scales + i * 4);
        up[i] = a_up * b;
        down[i] = a_down * b;
      }
#pragma unroll
      for (int j = 0; j < C.sub_cols() / 8; ++j) {
        const int col = kFirst + j * 8;
        float u = up[0], d = down[0];
        if constexpr (C.cols % 128 == 0) {
          u = up[col / 128];
          d = down[col / 128];
        } else {
          // Uniform over the CTA: which block of 128 the column falls into.
#pragma unroll
          for (int i = 1; i < kScales; ++i) {
            const bool past = scale_row + col >= i * 128;
            u = past ? up[i] : u;
            d = past ? down[i] : d;
          }
        }
        result[kBase + 4 * j + 0] += accumulators[4 * j + 0] * u;
        result[kBase + 4 * j + 1] += accumulators[4 * j + 1] * u;
        result[kBase + 4 * j + 2] += accumulators[4 * j + 2] * d;
        result[kBase + 4 * j + 3] += accumulators[4 * j + 3] * d;
      }
    }
  }

  // `blocks` k blocks, at least one, added up into `result`.
  __device__ __forceinline__ void Run(int blocks) {
#pragma unroll
    for (int i = 0; i < kResults; ++i) result[i] = 0.0f;
    if constexpr (!C.double_accumulators()) {
      RunSingle(blocks);
    } else if constexpr (kUnits == 1) {
      RunAlternating(blocks);
    } else {
      RunPaired(blocks);
    }
  }

  // One set of accumulators: the other warpgroup keeps the tensor cores busy meanwhile.
  __device__ __forceinline__ void RunSingle(int blocks) {
    float accumulators[kAccumulators];
    for (int i = 0; i < blocks; ++i) {
      WaitFull();
      Unit<0>(accumulators);
      if constexpr (kUnits > 1) Unit<1>(accumulators);
      if constexpr (kUnits > 2) Unit<2>(accumulators);
      if constexpr (kUnits > 3) Unit<3>(accumulators);
      static_assert(kUnits <= 4);
      Release();
      issue.Advance();
    }
  }
  template <int kUnit>
  __device__ __forceinline__ void Unit(float (&accumulators)[kAccumulators]) {
    Multiply<kUnit>(accumulators);
    ptx::WgmmaWait<0>();
    ptx::Pin(accumulators);
    Promote<kUnit>(accumulators);
  }

  __device__ __forceinline__ void Issue(float (&accumulators)[kAccumulators]) {
    WaitFull();
    Multiply<0>(accumulators);
    issue.Advance();
  }
  __device__ __forceinline__ void Retire(float (&accumulators)[kAccumulators]) {
    ptx::Pin(accumulators);
    Promote<0>(accumulators);
    Release();
  }

  // Two sets, one chain a k block: the next block multiplies while this one is promoted.
  __device__ __forceinline__ void RunAlternating(int blocks) {
    float even[kAccumulators], odd[kAccumulators];
    Issue(even);
    int i = 0;
    for (; i + 2 < blocks; i += 2) {
      Issue(odd);
      ptx::WgmmaWait<1>();
      Retire(even);
      Issue(even);
      ptx::WgmmaWait<1>();
      Retire(odd);
    }
    if (i + 1 < blocks) {
      Issue(odd);
      ptx::WgmmaWait<1>();
      Retire(even);
      ptx::WgmmaWait<0>();
      Retire(odd);
    } else {
      ptx::WgmmaWait<0>();
      Retire(even);
    }
  }

  // Two sets, two chains a k block.
  __device__ __forceinline__ void RunPaired(int blocks) {
    float first[kAccumulators], second[kAccumulators];
    WaitFull();
    Multiply<0>(first);
    for (int i = 0; i + 1 < blocks; ++i) {
      Multiply<1>(second);
      issue.Advance();
      ptx::WgmmaWait<1>();
      ptx::Pin(first);
      Promote<0>(first);
      WaitFull();
      Multiply<0>(first);
      ptx::WgmmaWait<1>();
      ptx::Pin(second);
      Promote<1>(second);
      Release();
    }
    Multiply<1>(second);
    issue.Advance();
    ptx::WgmmaWait<1>();
    ptx::Pin(first);
    Promote<0>(first);
    ptx::WgmmaWait<0>();
    ptx::Pin(second);
    Promote<1>(second);
    Release();
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_MATH_CUH_
