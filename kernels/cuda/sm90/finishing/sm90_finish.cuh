// From sums to D where more than rounding is asked for: alpha, C, a bias, an activation, FP32, or
// rows of D that begin anywhere. Sums pass through staging in FP32, from where a thread takes four
// neighbours of a row of D at a time, so that C and D are read and written in whole runs of a row.
//
// Only kernels that finish have this code (GemmFamilyEntry::finishing): in the others it would cost
// time to results that need none of it.

#pragma once

#include <type_traits>

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish_shifted.cuh"
#include "kernels/cuda/sm90/finishing/sm90_round_shifted.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_exchange.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"

namespace gemmd::kernels::cuda {

// Four neighbours of a row in memory, in one access.
struct FourF32 {
  using Element = float;
  float4 v = {};

  __device__ __forceinline__ static FourF32 Of(float4 v, OutType) { return {v}; }
  __device__ __forceinline__ float4 Values(OutType) const { return v; }
  __device__ __forceinline__ float At(int i) const {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
};
struct Four16 {
  using Element = uint16_t;
  uint2 v = {};

  __device__ __forceinline__ static Four16 Of(float4 v, OutType type) {
    return {make_uint2(Pack2(v.x, v.y, type), Pack2(v.z, v.w, type))};
  }
  __device__ __forceinline__ float4 Values(OutType type) const {
    const float2 left = Unpack2(v.x, type), right = Unpack2(v.y, type);
    return make_float4(left.x, left.y, right.x, right.y);
  }
  __device__ __forceinline__ uint16_t At(int i) const {
    return static_cast<uint16_t>((i < 2 ? v.x : v.y) >> i % 2 * 16);
  }
};

// A warpgroup's threads that share staging, and the four columns of D that each takes: of tiles of
// A's rows a warp's 16 rows and 32 columns; else 64 columns of as many rows as are staged.
// `Four`: of D's type, which is C's.
template <GemmConfig C, class Out, class Four>
struct Finisher {
  static_assert(!C.stages_halves(), "16 rows are staged");
  static constexpr int kThreads = C.skinny() ? 128 : 32;
  static constexpr int kAcross = C.skinny() ? 16 : 8;  // threads along a row
  static constexpr int kRowsAtOnce = kThreads / kAcross;
  // Chunks of 8 of the column side that are staged at a time: more would take registers for C.
  static constexpr int kStep = Out::kStepF32 < 4 ? Out::kStepF32 : 4;
  static constexpr int kPasses = C.skinny() ? kStep : 16 / kRowsAtOnce;
  using InMemory = Four;
  using Element = typename Four::Element;
  static constexpr int kWidth = C.skinny() ? 64 : 0;  // of a step in D's columns; else its chunks'

  // What is added to one step's sums: on its way while the step in front is finished.
  struct Addends {
    Four c[kPasses];
    float4 bias;
  };
  // Chunks [first, last) of a sub-tile; this thread's place in D: the first pass's row, its column,
  // and how many columns from there on D has.
  struct Step {
    int first, last;
    int m, n, count;
  };

  const Out& out;
  const GemmArgs& args;
  int across;
  int row;
  bool whole;  // four columns are in D or outside, and can be read and written at once

  __device__ __forceinline__ explicit Finisher(const Out& out) : out(out), args(out.args) {
    const int thread = C.skinny() ? out.warp * 32 + out.lane : out.lane;
    across = thread % kAcross;
    row = thread / kAcross;
    uint64_t elements = args.n | args.ldd | args.d_batch;
    uint64_t bytes = reinterpret_cast<uint64_t>(args.d);
    if (args.beta != 0.0f) {
      elements |= args.ldc | args.c_batch;
      bytes |= reinterpret_cast<uint64_t>(args.c);
    }
    const uint64_t bias = reinterpret_cast<uint64_t>(args.bias);
    whole = elements % 4 == 0 && bytes % (4 * sizeof(Element)) == 0 &&
            bias % (args.bias_is_f32 ? 16 : 4 * sizeof(Element)) == 0;
  }

  __device__ __forceinline__ Step At(int sub, int first, int end) const {
    Step step = {first, min(first + kStep, end)};
    if constexpr (C.skinny()) {
      step.m = out.tile.col0 + first * 8 + row;
      step.n = out.SubRow(sub) + across * 4;
    } else {
      step.m = out.SubRow(sub) + out.warp * 16 + row;
      step.n = out.tile.col0 + first * 8 + across * 4;
    }
    step.count = min(static_cast<int>(args.n) - step.n, 4);
    if (!C.skinny() && across >= (step.last - first) * 2) step.count = 0;
    return step;
  }
  __device__ __forceinline__ bool Staged(const Step& step, int pass) const {
    return !C.skinny() || pass < step.last - step.first;
  }
  __device__ __forceinline__ uint32_t StagedRow(int pass) const {
    return out.staging + (row + pass * kRowsAtOnce) * Out::kPitchF32;
  }
  // How many columns a pass has: none outside of D's rows or of the step's.
  __device__ __forceinline__ int Count(const Step& step, int pass) const {
    if (!Staged(step, pass)) return 0;
    return step.m + pass * kRowsAtOnce < args.m ? step.count : 0;
  }

  template <class Any>
  __device__ __forceinline__ Any Load(const void* base, int64_t at, int count) const {
    const auto* const source = static_cast<const typename Any::Element*>(base) + at;
    Any four;
    if (count > 0) four.v = *reinterpret_cast<const decltype(four.v)*>(source);
    return four;
  }

  __device__ __forceinline__ Addends Fetch(const Step& step) const {
    Addends addends;
    addends.bias = make_float4(0, 0, 0, 0);
    if (!whole) return addends;
    if (args.bias != nullptr) {
      addends.bias = args.bias_is_f32 ? Load<FourF32>(args.bias, step.n, step.count).v
                                      : Load<Four>(args.bias, step.n, step.count).Values(args.out);
    }
    if (args.beta == 0.0f) return addends;
    const int64_t at = out.tile.batch * args.c_batch + step.m * args.ldc + step.n;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      addends.c[pass] = Load<Four>(args.c, at + pass * kRowsAtOnce * args.ldc, Count(step, pass));
    }
    return addends;
  }

  // A chunk of sums into staging.
  __device__ __forceinline__ void Stage(const Step& step, int chunk, float4 v) const {
    if constexpr (C.skinny()) {
      out.StageF32(chunk, step.first, v);
    } else {
      const uint32_t at = out.staging + out.lane / 4 * Out::kPitchF32 + (chunk - step.first) * 32 +
                          out.lane % 4 * 8;
      ptx::StoreShared2(at, make_float2(v.x, v.y));
      ptx::StoreShared2(at + 8 * Out::kPitchF32, make_float2(v.z, v.w));
    }
  }

  __device__ __forceinline__ float Sum(float sum, float c, float bias) const {
    return __fadd_rn(__fmaf_rn(args.beta, c, __fmul_rn(sum, args.alpha)), bias);
  }

  // What was staged goes to D. One copy of the activations for rows that begin anywhere and others.
  __device__ __forceinline__ void Put(const Step& step, const Addends& addends) const {
    float4 sums[kPasses];
    if (whole) {
      TakeWhole(addends, sums);
    } else {
      ShiftedRows<Finisher>(*this, step).Take(sums);
    }
    Activate(sums);
    if (whole) {
      PutWhole(step, sums);
    } else {
      ShiftedRows<Finisher>(*this, step).Put(sums);
    }
  }

  __device__ __forceinline__ void TakeWhole(const Addends& addends, float4 (&sums)[kPasses]) const {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float4 v = ptx::LoadShared4(StagedRow(pass) + across * 16);
      const float4 c = addends.c[pass].Values(args.out);
      const float4 b = addends.bias;
      sums[pass] = make_float4(Sum(v.x, c.x, b.x), Sum(v.y, c.y, b.y), Sum(v.z, c.z, b.z),
                               Sum(v.w, c.w, b.w));
    }
  }
  __device__ __forceinline__ void PutWhole(const Step& step, const float4 (&sums)[kPasses]) const {
    Element* const d =
        static_cast<Element*>(args.d) + out.tile.batch * args.d_batch + step.m * args.ldd + step.n;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int count = Count(step, pass);
      const Four four = Four::Of(sums[pass], args.out);
      Element* const target = d + pass * kRowsAtOnce * args.ldd;
      if (count > 0) *reinterpret_cast<decltype(four.v)*>(target) = four.v;
    }
  }

  template <int kCount>
  __device__ __forceinline__ void Activate(float4 (&sums)[kCount]) const {
    if (args.activation == ActivationType::kNone) return;
    WithActivation(args.activation, [&]<ActivationType kType>() {
#pragma unroll
      for (float4& v : sums) {
        v = make_float4(Activated<kType>(v.x, 1.0f), Activated<kType>(v.y, 1.0f),
                        Activated<kType>(v.z, 1.0f), Activated<kType>(v.w, 1.0f));
      }
    });
  }
};

// A warpgroup's whole sums. The loop is rolled but for what picks registers: its code comes from
// memory line by line.
template <GemmConfig C, class Four, class Out>
__device__ __forceinline__ void FinishTile(const Out& out,
                                           const Sum<C> (&result)[C.result_regs()]) {
  using Finish = Finisher<C, Out, Four>;
  constexpr int kOfSub = (Out::kChunks + Finish::kStep - 1) / Finish::kStep;
  constexpr int kSteps = C.row_subs() * kOfSub;
  const Finish finish(out);
  const auto at = [&](int i) {
    return finish.At(i / kOfSub, i % kOfSub * Finish::kStep, Out::kChunks);
  };
  // What one step adds is fetched during the one in front, where there are registers for both.
  constexpr bool kAhead = C.math_registers() - C.result_regs() > 104;
  typename Finish::Step step = at(0);
  typename Finish::Addends addends = finish.Fetch(step);
#pragma unroll 1
  for (int i = 0; i < kSteps; ++i) {
    const typename Finish::Step next = at(min(i + 1, kSteps - 1));
    typename Finish::Addends ahead;
    if constexpr (kAhead) ahead = finish.Fetch(next);
    out.Sync();
#pragma unroll
    for (int of = 0; of < kSteps; ++of) {
      if (of != i) continue;
#pragma unroll
      for (int j = 0; j < Finish::kStep; ++j) {
        const int chunk = of % kOfSub * Finish::kStep + j;
        if (chunk >= Out::kChunks) break;
        const Sum<C>* const v = result + (of / kOfSub * Out::kChunks + chunk) * 4;
        finish.Stage(step, chunk,
                     make_float4(BitsOf(v[0]), BitsOf(v[1]), BitsOf(v[2]), BitsOf(v[3])));
      }
    }
    out.Sync();
    finish.Put(step, addends);
    step = next;
    if constexpr (kAhead) {
      addends = ahead;
    } else {
      addends = finish.Fetch(step);
    }
  }
}

// A share of sums that lie in an inbox (sm90_fp8_exchange.cuh).
template <GemmConfig C, class Four, class Out>
__device__ __forceinline__ void FinishShare(const Out& out, const Share& share, int parts,
                                            int thread) {
  using Finish = Finisher<C, Out, Four>;
  constexpr int kUnit = C.store_threads() * 16;
  const Finish finish(out);
  uint32_t at = share.from + thread * 16;
#pragma unroll 1
  for (int sub = 0; sub < share.subs; ++sub) {
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += Finish::kStep) {
      const typename Finish::Step step = finish.At(sub, first, share.end);
      const typename Finish::Addends addends = finish.Fetch(step);
      out.Sync();
#pragma unroll 1
      for (int chunk = first; chunk < step.last; ++chunk, at += kUnit) {
        float4 sum = SumOfParts<Sum<C>, kMaxClusterSize>(at, share.stride, parts);
        if constexpr (C.scales_results()) sum = out.scales.Apply(sub, chunk, sum);
        finish.Stage(step, chunk, sum);
      }
      out.Sync();
      finish.Put(step, addends);
    }
  }
}

template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreFinished(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                              const Out& out, Sum<C> (&result)[C.result_regs()]) {
  if (launch.rounds && !out.aligned) return StoreShifted<C>(out, result);
  if constexpr (!C.skinny()) {
    if (launch.adjusts) {
      if (!C.b_along_rows || !launch.rounds) out.Adjust(result);
      return StoreWhole<C>(launch, smem, out, result);
    }
  } else if constexpr (C.b_along_rows) {
    if (launch.rounds) return StoreWhole<C>(launch, smem, out, result);
  }
  if (out.args.out == OutType::kF32) {
    FinishTile<C, FourF32>(out, result);
  } else {
    FinishTile<C, Four16>(out, result);
  }
}

template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreFinishedShare(const GemmLaunch& launch, const Out& out,
                                                   const Share& share, int thread) {
  const int parts = launch.split.parts;
  if constexpr (C.b_along_rows) {
    if (launch.rounds && out.aligned) return StoreSum<C>(out, share, parts, thread);
  }
  if (out.args.out == OutType::kF32) {
    FinishShare<C, FourF32>(out, share, parts, thread);
  } else {
    FinishShare<C, Four16>(out, share, parts, thread);
  }
}

// Has C of chunks [begin, end) of a warpgroup's part of `out.tile` brought into L2, while the tile
// multiplies.
template <GemmConfig C, class Out>
__device__ __forceinline__ void PrefetchC(const Out& out, int begin, int end) {
  const GemmArgs& args = out.args;
  if (args.beta == 0.0f) return;
  constexpr int kLine = 128;
  constexpr int kOwn = C.row_subs() * 64;  // rows of the row side
  const int size = args.out == OutType::kF32 ? 4 : 2;
  const int row0 = C.skinny() ? out.tile.col0 + begin * 8 : out.SubRow(0);
  const int col0 = C.skinny() ? out.SubRow(0) : out.tile.col0 + begin * 8;
  const int rows = min(C.skinny() ? (end - begin) * 8 : kOwn, static_cast<int>(args.m) - row0);
  const int cols = min(C.skinny() ? kOwn : (end - begin) * 8, static_cast<int>(args.n) - col0);
  const char* const c = static_cast<const char*>(args.c) +
                        (out.tile.batch * args.c_batch + row0 * args.ldc + col0) * size;
  for (int row = out.warp * 32 + out.lane; row < rows; row += 128) {
    for (int at = 0; at < cols * size; at += kLine) ptx::PrefetchL2(c + row * args.ldc * size + at);
  }
}

}  // namespace gemmd::kernels::cuda
