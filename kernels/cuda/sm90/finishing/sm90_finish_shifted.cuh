// Rows of D that begin or end within four columns, as those of an odd n do: for Finisher
// (sm90_finish.cuh), whose threads take four columns each of what was staged.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

// Each thread's columns begin where four of D's row do, up to three further to the left: in all of
// its rows alike, since these lie a multiple of four apart. What the first thread has beyond the
// left edge of what is staged it takes from the right edge instead, which nobody else has.
template <class Finisher>
struct ShiftedRows {
  using Four = typename Finisher::InMemory;
  using Element = typename Finisher::Element;
  using Step = typename Finisher::Step;
  static constexpr int kPasses = Finisher::kPasses, kRowsAtOnce = Finisher::kRowsAtOnce;
  static_assert(kRowsAtOnce % 4 == 0, "rows of a thread begin alike");

  const Finisher& finish;
  const Step& step;
  const GemmArgs& args;
  int limit;        // columns that are staged and in D
  int n0;           // the first of them in D
  int columns[4];   // this thread's, from there on
  bool together;    // in D and beside one another
  bool c_together;  // C's, too, where four of its row do
  bool none;        // of them is in D

  __device__ __forceinline__ ShiftedRows(const Finisher& finish, const Step& step)
      : finish(finish), step(step), args(finish.args) {
    const int width = Finisher::kWidth > 0 ? Finisher::kWidth : (step.last - step.first) * 8;
    n0 = step.n - finish.across * 4;
    limit = min(width, static_cast<int>(args.n) - n0);
    none = finish.across * 4 >= width || limit <= 0;
    const Element* const row = RowOf(args.d, args.d_batch, args.ldd, 0);
    const int first =
        finish.across * 4 - static_cast<int>(reinterpret_cast<uint64_t>(row) / sizeof(Element) % 4);
    together = first >= 0 && first + 4 <= limit;
#pragma unroll
    for (int i = 0; i < 4; ++i) columns[i] = first + i < 0 ? first + i + width : first + i;
    const uint64_t apart = reinterpret_cast<uint64_t>(args.c) - reinterpret_cast<uint64_t>(args.d);
    c_together = together && apart % (4 * sizeof(Element)) == 0 &&
                 ((args.ldc - args.ldd) | (args.c_batch - args.d_batch)) % 4 == 0;
  }

  // Of D, or of C: this thread's row of a pass, from n0 on.
  __device__ __forceinline__ Element* RowOf(const void* base, int64_t batch, int64_t ld,
                                            int pass) const {
    auto* const elements = static_cast<Element*>(const_cast<void*>(base));
    return elements + finish.out.tile.batch * batch + (step.m + pass * kRowsAtOnce) * ld + n0;
  }
  __device__ __forceinline__ bool HasRow(int pass) const {
    return finish.Staged(step, pass) && step.m + pass * kRowsAtOnce < args.m;
  }

  // What was staged, with C and the bias.
  __device__ __forceinline__ void Take(float4 (&sums)[kPasses]) const {
    if (none) return;
    const bool apart = args.beta != 0.0f && !c_together;
    if (apart) AddC();
    const float alpha = apart ? 1.0f : args.alpha;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const uint32_t source = finish.StagedRow(pass);
      const auto at = [&](int i) {
        return __fmul_rn(ptx::LoadShared(source + columns[i] * 4), alpha);
      };
      sums[pass] = make_float4(at(0), at(1), at(2), at(3));
    }
    if (args.beta != 0.0f || args.bias != nullptr) Add(apart ? 0.0f : args.beta, sums);
  }

  // That goes to D.
  __device__ __forceinline__ void Put(const float4 (&sums)[kPasses]) const {
    if (none) return;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!HasRow(pass)) return;
      const Four four = Four::Of(sums[pass], args.out);
      Element* const d = RowOf(args.d, args.d_batch, args.ldd, pass);
      if (together) {
        *reinterpret_cast<decltype(Four::v)*>(d + columns[0]) = four.v;
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (columns[i] < limit) d[columns[i]] = four.At(i);
      }
    }
  }

  // C where four of it are not beside one another, number by number, to what was staged. Few
  // threads have such, so that little code is worth more than its time.
  __device__ __forceinline__ void AddC() const {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!HasRow(pass)) return;
      const Element* const c = RowOf(args.c, args.c_batch, args.ldc, pass);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (columns[i] >= limit) continue;
        const uint32_t at = finish.StagedRow(pass) + columns[i] * 4;
        const float sum = __fmul_rn(ptx::LoadShared(at), args.alpha);
        ptx::StoreShared(at, __fmaf_rn(args.beta, LoadAs(c, columns[i], args.out), sum));
      }
    }
  }

  // `beta` times C's four of each pass, and the bias.
  __device__ __forceinline__ void Add(float beta, float4 (&sums)[kPasses]) const {
    float bias[4] = {};
    if (args.bias != nullptr) {
      const OutType type = args.bias_is_f32 ? OutType::kF32 : args.out;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (columns[i] < limit) bias[i] = LoadAs(args.bias, n0 + columns[i], type);
      }
    }
    Four c[kPasses] = {};
    if (beta != 0.0f) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const Element* const row = RowOf(args.c, args.c_batch, args.ldc, pass) + columns[0];
        if (HasRow(pass)) c[pass].v = *reinterpret_cast<const decltype(Four::v)*>(row);
      }
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto added = [&](float sum, float addend, float of_bias) {
        return __fadd_rn(__fmaf_rn(beta, addend, sum), of_bias);
      };
      const float4 of_c = c[pass].Values(args.out);
      float4& sum = sums[pass];
      sum = make_float4(added(sum.x, of_c.x, bias[0]), added(sum.y, of_c.y, bias[1]),
                        added(sum.z, of_c.z, bias[2]), added(sum.w, of_c.w, bias[3]));
    }
  }
};

}  // namespace gemmd::kernels::cuda
