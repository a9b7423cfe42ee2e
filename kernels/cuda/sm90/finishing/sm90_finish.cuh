// From sums to D where more than rounding is asked for: alpha, C, a bias, an activation, FP32, or
// rows of D that begin anywhere. Sums are finished in the registers where they lie, and leave as
// those that are only rounded do.
//
// Only kernels that finish have this code (GemmFamilyEntry::finishing): in the others it would cost
// time to results that need none of it.

#pragma once

#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/finishing/sm90_addends.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish_in_place.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finisher.cuh"
#include "kernels/cuda/sm90/finishing/sm90_float_store.cuh"
#include "kernels/cuda/sm90/finishing/sm90_ring_addend.cuh"
#include "kernels/cuda/sm90/finishing/sm90_round_shifted.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_exchange.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"

namespace gemmd::kernels::cuda {

// `visit(sub, first, last, at)` of each step of a share that is staged at a time, `at`: of its
// first chunk's sums.
template <GemmConfig C, int kStep, class Visit>
__device__ __forceinline__ void EachStep(const Share& share, int thread, Visit visit) {
  constexpr int kUnit = C.store_threads() * 16;
  uint32_t at = share.from + thread * 16;
#pragma unroll 1
  for (int sub = 0; sub < share.subs; ++sub) {
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += kStep) {
      const int last = min(first + kStep, share.end);
      visit(sub, first, last, at);
      at += (last - first) * kUnit;
    }
  }
}

// One chunk of a share's sums (sm90_fp8_exchange.cuh).
template <GemmConfig C, class Out>
__device__ __forceinline__ float4 ShareChunk(const Out& out, const Share& share, int parts, int sub,
                                             int chunk, uint32_t at) {
  const float4 sum = SumOfParts<Sum<C>, kMaxClusterSize>(at, share.stride, parts);
  if constexpr (C.scales_results()) return out.scales.Apply(sub, chunk, sum);
  return sum;
}

// A share to FP32.
template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreFloatShare(const Out& out, const Share& share, int parts,
                                                int thread) {
  constexpr int kUnit = C.store_threads() * 16;
  using Store = FloatStore<C, Out>;
  const Store store(out);
  EachStep<C, Store::kStep>(share, thread, [&](int sub, int first, int last, uint32_t at) {
    const auto place = store.At(sub, first, last);
    const auto addends = store.Fetch(place);
    out.Sync();
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk, at += kUnit) {
      store.Stage(chunk - first, ShareChunk<C>(out, share, parts, sub, chunk, at));
    }
    out.Sync();
    store.Put(place, addends);
  });
}

// A share to 16 bits. `addends`: of its first chunks, asked for before these came; those of the
// next ones are under way while some are finished.
template <GemmConfig C, class Out>
__device__ __forceinline__ void FinishShare(const Out& out, const Share& share, int parts,
                                            int thread,
                                            typename Finisher<C, Out>::Addends addends) {
  using Finish = Finisher<C, Out>;
  constexpr int kUnit = C.store_threads() * 16, kAtOnce = Finish::kAtOnce;
  const Finish finish(out);
  EachStep<C, Out::kStep>(share, thread, [&](int sub, int first, int last, uint32_t at) {
    out.Sync();
#pragma unroll 1
    for (int begin = first; begin < last; begin += kAtOnce) {
      const int end = min(begin + kAtOnce, last);
      const bool ends_sub = end == share.end;
      typename Finish::Addends next = addends;
      if (!ends_sub || sub + 1 < share.subs) {
        next = finish.Load(sub + ends_sub, ends_sub ? share.begin : end);
      }
      float v[Finish::kValues] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i >= end) break;
        const float4 sum = ShareChunk<C>(out, share, parts, sub, begin + i, at);
        v[4 * i] = sum.x, v[4 * i + 1] = sum.y, v[4 * i + 2] = sum.z, v[4 * i + 3] = sum.w;
        at += kUnit;
      }
      finish.Finish(v, addends);
      addends = next;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i >= end) break;
        out.Stage(begin + i, first,
                  make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
      }
    }
    out.Sync();
    if (!out.aligned) {
      ShiftedCopy<C, Out>(out, sub, first, last).Run();
    } else if (out.whole) {
      out.CopyWhole(sub, first, last);
    } else {
      out.CopyUnits(sub, first, last);
    }
  });
}

template <GemmConfig C, class Out, class Ring>
__device__ __forceinline__ void StoreFinished(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                              const Out& out, Sum<C> (&result)[C.result_regs()],
                                              Ring& ring, const TileBias<C, Out>& bias) {
  if (!launch.rounds) {
    if (out.args.out == OutType::kF32) return StoreFloats<C>(out, result);
    if (!C.skinny() && launch.adjusts) {
      if constexpr (!C.skinny()) out.Adjust(result);
    } else {
      FinisherInPlace<C, Out>(out).Run(result, ring, bias);
    }
  }
  if (out.aligned) {
    StoreWhole<C>(launch, smem, out, result);
  } else {
    StoreShifted<C>(out, result);
  }
}

template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreFinishedShare(
    const GemmLaunch& launch, const Out& out, const Share& share, int thread,
    const typename Finisher<C, Out>::Addends& addends) {
  const int parts = launch.split.parts;
  if constexpr (C.b_along_rows) {
    if (launch.rounds && out.aligned) return StoreSum<C>(out, share, parts, thread);
  }
  if (out.args.out == OutType::kF32) return StoreFloatShare<C>(out, share, parts, thread);
  FinishShare<C>(out, share, parts, thread, addends);
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
