// A math warpgroup of FP32: of each 64 of k the products of parts, six k blocks of the ring, are
// one chain in fresh accumulators, smallest first. Tensor cores truncate what they add, so no
// longer chain is left in them: FP32 additions, which round, take it into the result.

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_math.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
struct FloatMath : Math<C> {
  using Base = Math<C>;
  using Base::Base;
  using Base::issue;
  using Base::kAccumulators;
  using Base::result;

  // `steps` k blocks of a tile, at least one, added up into `result`.
  __device__ __forceinline__ void Run(int steps, const Tile&) {
    Base::Clear();
    float accumulators[kAccumulators];
#pragma unroll 1
    for (int left = steps; left > 0; left -= C.products()) {
      ptx::Pin(accumulators);
      Issue<true>(accumulators);
      const int chain = min(left, C.products());
#pragma unroll 1
      for (int i = 1; i < chain; ++i) {
        Issue<false>(accumulators);
        ptx::WgmmaWait<1>();
        Base::Release();
      }
      Base::Finish(accumulators);
      Base::Release();
#pragma unroll
      for (int i = 0; i < kAccumulators; ++i) result[i] += accumulators[i];
    }
  }

 private:
  // The k block at `issue`, of which the first one of a chain overwrites what was there.
  template <bool kFirst>
  __device__ __forceinline__ void Issue(float (&accumulators)[kAccumulators]) {
    Base::WaitFull();
    const uint32_t stage = issue.stage * (C.stage_bytes() / 16);
    const uint32_t rows = Base::rows_units + stage, cols = Base::cols_units + stage;
    ptx::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kRowBytes / 32; ++i) {
      Base::Products::Wgmma::Multiply(accumulators, ptx::KMajorDescriptor(rows + i * 2),
                                      ptx::KMajorDescriptor(cols + i * 2), !kFirst || i != 0);
    }
    ptx::WgmmaCommit();
    issue.Advance();
  }
};

}  // namespace gemmd::kernels::cuda
