// The same of all of a thread's sums where they lie, before these are rounded and stored as those
// are that need no finish.

#pragma once

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finisher.cuh"

namespace gemmd::kernels::cuda {

// All sums of a thread, where they lie. Nothing is rolled: what is written in a loop, by a number
// that is not known, ptxas keeps twice, and has no registers left for more than one at a time.
template <GemmConfig C, class Out>
struct FinisherInPlace : Finisher<C, Out> {
  using Base = Finisher<C, Out>;
  using Base::args;
  using Base::Base;
  using Base::out;
  using Sums = Sum<C>[C.result_regs()];
  static constexpr int kAtOnce = Base::kAtOnce, kValues = Base::kValues;
  static constexpr int kOfSub = (Out::kChunks + kAtOnce - 1) / kAtOnce;
  static constexpr int kSteps = C.row_subs() * kOfSub;

  // `load(sub, first, words)`: C of a step's chunks, two a word.
  template <class LoadAddend>
  __device__ __forceinline__ void AddC(Sums& sums, LoadAddend load) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int sub = step / kOfSub, first = step % kOfSub * kAtOnce;
      uint32_t words[kValues / 2];
      float c[kValues];
      load(sub, first, words);
      UnpackAll(words, args.out, c);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (first + i / 4 >= Out::kChunks) break;
        Sum<C>& sum = sums[(sub * Out::kChunks + first) * 4 + i];
        sum = FromBits<Sum<C>>(this->WithC(BitsOf(sum), c[i]));
      }
    }
  }

  template <class Change>
  __device__ __forceinline__ void Each(Sums& sums, Change change) const {
#pragma unroll
    for (Sum<C>& sum : sums) sum = FromBits<Sum<C>>(change(BitsOf(sum)));
  }

  __device__ __forceinline__ void AddBias(Sums& sums, const TileBias<C, Out>& bias) const {
#pragma unroll
    for (int chunk = 0; chunk < Out::kChunks; ++chunk) {
      float of_columns[2];
      if constexpr (!C.skinny()) {
        of_columns[0] = bias.OfColumn(chunk, 0, out.lane),
        of_columns[1] = bias.OfColumn(chunk, 1, out.lane);
      }
#pragma unroll
      for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Sum<C>& sum = sums[(sub * Out::kChunks + chunk) * 4 + i];
          const float more = C.skinny() ? bias.v[2 * sub + i / 2] : of_columns[i % 2];
          sum = FromBits<Sum<C>>(__fadd_rn(BitsOf(sum), more));
        }
      }
    }
  }

  __device__ __forceinline__ void Activate(Sums& sums) const {
    switch (args.activation) {
      case ActivationType::kNone:
        return;
      case ActivationType::kRelu:
        return Each(sums, [](float x) { return Activated<ActivationType::kRelu>(x, 1.0f); });
      case ActivationType::kGeluErf:
        return Each(sums, [](float x) { return Activated<ActivationType::kGeluErf>(x, 1.0f); });
      case ActivationType::kReluSquared:
        return Each(sums, [](float x) { return Activated<ActivationType::kReluSquared>(x, 1.0f); });
      default: {
        const SigmoidLike gate(args.activation);
        return Each(sums, [&](float x) { return gate.Activated(x); });
      }
    }
  }

  // `ring`: where C comes from, if it comes so.
  template <class Ring>
  __device__ __forceinline__ void Run(Sums& sums, Ring& ring, const TileBias<C, Out>& bias) const {
    if (ring.there()) {
      if constexpr (Ring::kHas) {
        ring.Await();
        AddC(sums, [&](int sub, int first, uint32_t(&words)[kValues / 2]) {
          ring.template Read<kAtOnce>(out, sub, first, words);
        });
        ring.Release();
      }
    } else if (args.beta != 0.0f) {
      AddC(sums, [&](int sub, int first, uint32_t(&words)[kValues / 2]) {
        uint32_t c[kValues];
        LoadC<C, kAtOnce>(out, sub, first, c);
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i) words[i] = c[2 * i] | c[2 * i + 1] << 16;
      });
    } else if (args.alpha != 1.0f) {
      Each(sums, [&](float x) { return __fmul_rn(x, args.alpha); });
    }
    if (args.bias != nullptr) AddBias(sums, bias);
    Activate(sums);
  }
};

}  // namespace gemmd::kernels::cuda
