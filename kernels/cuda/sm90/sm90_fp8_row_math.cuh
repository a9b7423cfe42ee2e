// A math warpgroup of E4M3 whose scales wait for the results (sm90_direct_scales.cuh): products of
// 128 of k into fresh accumulators, as where blocks have scales, and from there into the result.

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_math.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
struct RowMath : Math<C> {
  using Base = Math<C>;
  using Base::Base;
  using Base::issue;
  using Base::kAccumulators;
  using Base::kSubs;
  using Base::result;

  // `steps` k blocks of a tile, at least one, added up into `result`.
  __device__ __forceinline__ void Run(int steps, const Tile& tile) {
    Base::Clear();
    Add(steps, tile);
  }
  // On top of what is there.
  __device__ __forceinline__ void Add(int steps, const Tile&) {
    if constexpr (C.double_accumulators()) {
      RunAlternating(steps);
    } else {
      RunSingle(steps);
    }
  }

 private:
  template <int kSub>
  __device__ __forceinline__ void Promote(const float (&accumulators)[kAccumulators]) const {
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) result[kSub * kAccumulators + i] += accumulators[i];
  }

  // One set of accumulators: the other warpgroups keep the tensor cores busy meanwhile.
  __device__ __forceinline__ void RunSingle(int steps) {
    static_assert(kSubs <= 2);
    float accumulators[kAccumulators];
    Base::WaitFull();
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      Base::template Multiply<0>(accumulators);
      if constexpr (kSubs == 2) {
        Base::Finish(accumulators);
        Promote<0>(accumulators);
        Base::template Multiply<1>(accumulators);
      }
      issue.Advance();
      if (i + 1 < steps) Base::WaitFull();
      Base::Finish(accumulators);
      Base::Release();
      Promote<kSubs - 1>(accumulators);
    }
  }

  template <int kPending>
  __device__ __forceinline__ void Retire(float (&accumulators)[kAccumulators]) {
    ptx::WgmmaWait<kPending>();
    ptx::Pin(accumulators);
    Base::Release();
    Promote<0>(accumulators);
  }

  // Two sets: the next block multiplies while this one is added.
  __device__ __forceinline__ void RunAlternating(int steps) {
    float even[kAccumulators], odd[kAccumulators];
    Base::Issue(even);
    int i = 0;
#pragma unroll 1
    for (; i + 2 < steps; i += 2) {
      Base::Issue(odd);
      Retire<1>(even);
      Base::Issue(even);
      Retire<1>(odd);
    }
    if (i + 1 < steps) {
      Base::Issue(odd);
      Retire<1>(even);
      Retire<0>(odd);
    } else {
      Retire<0>(even);
    }
  }
};

}  // namespace gemmd::kernels::cuda
