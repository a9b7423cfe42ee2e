// What surrounds a sum: alpha, C, a bias and an activation, of a few sums at a time, with all that
// is added by loads. So finish shares of a tile.

#pragma once

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/sm90/finishing/sm90_addends.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// Sixteen of a thread's sums or less: of kAtOnce chunks of a sub-tile.
template <GemmConfig C, class Out>
struct Finisher {
  static constexpr int kAtOnce = Out::kChunks < 4 ? Out::kChunks : 4;
  static constexpr int kValues = 4 * kAtOnce;

  const Out& out;
  const GemmArgs& args;

  __device__ __forceinline__ explicit Finisher(const Out& out) : out(out), args(out.args) {}

  __device__ __forceinline__ float WithC(float sum, float c) const {
    return __fmaf_rn(args.beta, c, __fmul_rn(sum, args.alpha));
  }

  // What is added, as it lies in memory: whoever asks for it early does not wait for it.
  struct Addends {
    uint32_t c[kValues];
    ChunkBias<C, kAtOnce> bias;
  };
  // Of chunks from `first` on; of FP32 nothing.
  __device__ __forceinline__ Addends Load(int sub, int first) const {
    Addends addends;
#pragma unroll
    for (uint32_t& c : addends.c) c = 0;
    if (args.out == OutType::kF32) return addends;
    if (args.beta != 0.0f) LoadC<C, kAtOnce>(out, sub, first, addends.c);
    addends.bias.Load(out, sub, first);
    return addends;
  }

  __device__ __forceinline__ void Finish(float (&v)[kValues], const Addends& addends) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float c = Unpack2(addends.c[i], args.out).x;
      v[i] = __fadd_rn(WithC(v[i], c), addends.bias.Of(i, args));
    }
    WithActivation(args.activation, [&]<ActivationType kType>() {
#pragma unroll
      for (float& x : v) x = Activated<kType>(x, 1.0f);
    });
  }
};

}  // namespace gemmd::kernels::cuda
