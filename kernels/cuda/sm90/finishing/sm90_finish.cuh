// From sums to D where more than rounding is asked for: alpha, C, a bias, an activation, FP32, or
// rows of D that begin anywhere. Sums pass through staging in FP32, from where a thread takes four
// neighbours of a row of D at a time, so that C and D are read and written in whole runs of a row.
//
// Only kernels that finish have this code (GemmFamilyEntry::finishing): in the others it would cost
// time to results that need none of it.

#pragma once

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ptx/flag.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish_shifted.cuh"
#include "kernels/cuda/sm90/finishing/sm90_four_in_memory.cuh"
#include "kernels/cuda/sm90/finishing/sm90_round_shifted.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_exchange.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"

namespace gemmd::kernels::cuda {

// A warpgroup's threads that share staging, and the four columns of D that each takes: of tiles of
// A's rows a warp's 16 rows and 32 columns; else 64 columns of as many rows as are staged.
template <GemmConfig C, class Out>
struct Finisher {
  static_assert(!C.stages_halves(), "16 rows are staged");
  static constexpr int kThreads = C.skinny() ? 128 : 32;
  static constexpr int kAcross = C.skinny() ? 16 : 8;  // threads along a row
  static constexpr int kRowsAtOnce = kThreads / kAcross;
  // Chunks of 8 of the column side that are staged at a time: more would take registers for C.
  static constexpr int kStep = Out::kStepF32 < 4 ? Out::kStepF32 : 4;
  static constexpr int kPasses = C.skinny() ? kStep : 16 / kRowsAtOnce;
  static constexpr int kWidth = C.skinny() ? 64 : 0;  // of a step in D's columns; else its chunks'

  // What is added to one step's sums: on its way while the step in front is finished.
  struct Addends {
    FourInMemory c[kPasses];
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
  bool is_f32;  // D and C; of 16 bits otherwise
  bool whole;   // four columns are in D or outside, and can be read and written at once

  __device__ __forceinline__ explicit Finisher(const Out& out) : out(out), args(out.args) {
    const int thread = C.skinny() ? out.warp * 32 + out.lane : out.lane;
    across = thread % kAcross;
    row = thread / kAcross;
    is_f32 = args.out == OutType::kF32;
    uint64_t elements = args.n | args.ldd | args.d_batch;
    uint64_t bytes = reinterpret_cast<uint64_t>(args.d);
    if (args.beta != 0.0f) {
      elements |= args.ldc | args.c_batch;
      bytes |= reinterpret_cast<uint64_t>(args.c);
    }
    const uint64_t bias = reinterpret_cast<uint64_t>(args.bias);
    whole = elements % 4 == 0 && bytes % (4 * Bytes()) == 0 &&
            bias % (args.bias_is_f32 ? 16 : 4 * Bytes()) == 0;
  }

  // Of an element of D.
  __device__ __forceinline__ int Bytes() const { return is_f32 ? 4 : 2; }

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

  __device__ __forceinline__ Addends Fetch(const Step& step) const {
    Addends addends;
    addends.bias = make_float4(0, 0, 0, 0);
    if (!whole) return addends;
    if (args.bias != nullptr && step.count > 0) {
      const bool of_f32 = is_f32 || args.bias_is_f32;
      FourInMemory bias;
      bias.Load(static_cast<const char*>(args.bias) + step.n * (of_f32 ? 4 : 2), of_f32);
      addends.bias = bias.Values(of_f32 ? OutType::kF32 : args.out);
    }
    if (args.beta == 0.0f) return addends;
    const int64_t at = out.tile.batch * args.c_batch + step.m * args.ldc + step.n;
    const char* const c = static_cast<const char*>(args.c) + at * Bytes();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (Count(step, pass) <= 0) continue;
      addends.c[pass].Load(c + pass * kRowsAtOnce * args.ldc * Bytes(), is_f32);
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

  // What was staged goes to D.
  __device__ __forceinline__ void Put(const Step& step, const Addends& addends) const {
    const ShiftedRows<Finisher> shifted(*this, step);
    float4 sums[kPasses];
    if (whole) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const float4 v = ptx::LoadShared4(StagedRow(pass) + across * 16);
        const float4 c = addends.c[pass].Values(args.out);
        const float4 b = addends.bias;
        sums[pass] = make_float4(Sum(v.x, c.x, b.x), Sum(v.y, c.y, b.y), Sum(v.z, c.z, b.z),
                                 Sum(v.w, c.w, b.w));
      }
    } else {
      shifted.Take(sums);
    }
    Activate(sums);
    if (!whole) return shifted.Put(sums);
    const int64_t at = out.tile.batch * args.d_batch + step.m * args.ldd + step.n;
    char* const d = static_cast<char*>(args.d) + at * Bytes();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const FourInMemory four = FourInMemory::Of(sums[pass], args.out);
      if (Count(step, pass) > 0) four.Store(d + pass * kRowsAtOnce * args.ldd * Bytes(), is_f32);
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

// What a call may be given: a warpgroup's whole sums, a share of sums that lie in an inbox
// (sm90_fp8_exchange.cuh), or one or the other.
enum class Sums { kOwn, kShare, kEither };

// Beside a copy of the code for both there are no registers for the scales of results.
template <GemmConfig C>
inline constexpr bool kFinishesEither = !C.alternates && !C.scales_results();

// One loop for whole sums and, where `parts` are several, a share: rolled but for what picks
// registers, as its code comes from memory line by line.
template <GemmConfig C, Sums kSums, class Out>
__device__ __forceinline__ void FinishSums(const GemmLaunch& launch, const Out& out,
                                           const Sum<C> (&result)[C.result_regs()],
                                           const Share& share, int parts, int thread) {
  using Finish = Finisher<C, Out>;
  constexpr int kOfSub = (Out::kChunks + Finish::kStep - 1) / Finish::kStep;
  constexpr int kSteps = C.row_subs() * kOfSub;
  constexpr int kUnit = C.store_threads() * 16;
  const bool own = kSums == Sums::kOwn || (kSums == Sums::kEither && parts == 1);
  const int begin = own ? 0 : share.begin, end = own ? Out::kChunks : share.end;
  const int subs = own ? C.row_subs() : share.subs;
  const Finish finish(out);
  // Not before the first tile: what a round without one stores is nowhere.
  if (launch.c_rounds != nullptr && out.tile.row0 != kBeyond) {
    ptx::AwaitRound(launch.c_rounds, launch.c_round);
  }
  uint32_t inbox = share.from + thread * 16;
  // What one step adds is fetched during the one in front, where there are registers for both.
  constexpr bool kAhead = C.math_registers() - C.result_regs() > 104;
  int sub = 0, first = begin;
  typename Finish::Step step = finish.At(sub, first, end);
  typename Finish::Addends addends = finish.Fetch(step);
#pragma unroll 1
  for (int i = 0; sub < subs; ++i) {
    const int of_sub = sub;
    first += Finish::kStep;
    if (first >= end) {
      first = begin;
      ++sub;
    }
    // Behind the last step nothing uses it, and its rows may be anywhere.
    const typename Finish::Step next = sub < subs ? finish.At(sub, first, end) : step;
    typename Finish::Addends ahead;
    if constexpr (kAhead) ahead = finish.Fetch(next);
    out.Sync();
    if (own) {
#pragma unroll
      for (int of = 0; of < kSteps; ++of) {
        if (of != i) continue;
#pragma unroll
        for (int j = 0; j < Finish::kStep; ++j) {
          const int chunk = of % kOfSub * Finish::kStep + j;
          if (chunk >= Out::kChunks) break;
          finish.Stage(step, chunk, ChunkOf<C>(result, of / kOfSub * Out::kChunks + chunk));
        }
      }
    } else {
#pragma unroll 1
      for (int chunk = step.first; chunk < step.last; ++chunk, inbox += kUnit) {
        float4 sum = SumOfParts<Sum<C>, kMaxClusterSize>(inbox, share.stride, parts);
        if constexpr (C.scales_results()) sum = out.scales.Apply(of_sub, chunk, sum);
        finish.Stage(step, chunk, sum);
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

// `parts`: of how many CTAs' sums the share is; 1: this one's whole sums are what is stored.
template <GemmConfig C, Sums kSums = Sums::kOwn, class Out>
__device__ __forceinline__ void StoreFinished(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                              const Out& out, Sum<C> (&result)[C.result_regs()],
                                              const Share& share = {}, int parts = 1,
                                              int thread = 0) {
  if (kSums == Sums::kOwn || (kSums == Sums::kEither && parts == 1)) {
    if (launch.rounds && !out.aligned) return StoreShifted<C>(out, result);
    if constexpr (!C.skinny()) {
      if (launch.adjusts) {
        if (!C.b_along_rows || !launch.rounds) out.Adjust(result);
        return StoreWhole<C>(launch, smem, out, result);
      }
    } else if constexpr (C.b_along_rows) {
      if (launch.rounds) return StoreWhole<C>(launch, smem, out, result);
    }
  } else if constexpr (C.b_along_rows) {
    if (launch.rounds && out.aligned) return StoreSum<C>(out, share, parts, thread);
  }
  FinishSums<C, kSums>(launch, out, result, share, parts, thread);
}

// Has C of chunks [begin, end) of a warpgroup's part of `out.tile` brought into L2, while the tile
// multiplies.
template <GemmConfig C, class Out>
__device__ __forceinline__ void PrefetchC(const GemmLaunch& launch, const Out& out, int begin,
                                          int end) {
  const GemmArgs& args = out.args;
  if (args.beta == 0.0f || launch.c_rounds != nullptr) return;
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
