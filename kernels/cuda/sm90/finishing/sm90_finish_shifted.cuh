// Rows of D that begin or end within four columns, as those of an odd n do: for Finisher
// (sm90_finish.cuh), whose threads take four columns each of what was staged.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

// Each thread's columns begin where four of D's row do, up to three further to the left. What the
// first thread has beyond the left edge of what is staged it takes from the right edge instead,
// which nobody else has.
template <class Finisher>
struct ShiftedRows {
  using Four = typename Finisher::InMemory;
  using Element = typename Finisher::Element;
  using Step = typename Finisher::Step;
  static constexpr int kPasses = Finisher::kPasses, kRowsAtOnce = Finisher::kRowsAtOnce;

  const Finisher& finish;
  const Step& step;
  const GemmArgs& args;
  int width;    // columns that are staged
  int n0;       // the first of them in D
  int limit;    // how many of them D has
  int behind;   // how far the first row is behind four columns
  int further;  // how much further each pass's is
  bool c_like;  // four of C's are read at once where four of D's are written so

  __device__ __forceinline__ ShiftedRows(const Finisher& finish, const Step& step)
      : finish(finish), step(step), args(finish.args) {
    width = Finisher::kWidth > 0 ? Finisher::kWidth : (step.last - step.first) * 8;
    n0 = step.n - finish.across * 4;
    limit = min(width, static_cast<int>(args.n) - n0);
    behind = static_cast<int>(reinterpret_cast<uint64_t>(RowOf(args.d, args.d_batch, args.ldd, 0)) /
                              sizeof(Element) % 4);
    further = static_cast<int>(kRowsAtOnce * args.ldd % 4);
    const uint64_t apart = reinterpret_cast<uint64_t>(args.c) - reinterpret_cast<uint64_t>(args.d);
    c_like = apart % (4 * sizeof(Element)) == 0 &&
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
  __device__ __forceinline__ int First(int pass) const {
    return finish.across * 4 - (behind + pass * further) % 4;
  }
  __device__ __forceinline__ int Column(int first, int i) const {
    return first + i < 0 ? first + i + width : first + i;
  }
  __device__ __forceinline__ bool Together(int first) const {
    return first >= 0 && first + 4 <= limit;
  }

  // What was staged of the step's sums goes to D.
  __device__ __forceinline__ void Put() const {
    if (finish.across * 4 >= width || limit <= 0) return;
    float4 sums[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const uint32_t source = finish.StagedRow(pass);
      const int first = First(pass);
      const auto at = [&](int i) {
        return __fmul_rn(ptx::LoadShared(source + Column(first, i) * 4), args.alpha);
      };
      sums[pass] = make_float4(at(0), at(1), at(2), at(3));
    }
    if (args.beta != 0.0f || args.bias != nullptr) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (HasRow(pass)) Add(pass, First(pass), sums[pass]);
      }
    }
    finish.Activate(sums);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!HasRow(pass)) return;
      const int first = First(pass);
      const Four four = Four::Of(sums[pass], args.out);
      Element* const d = RowOf(args.d, args.d_batch, args.ldd, pass);
      if (Together(first)) {
        *reinterpret_cast<decltype(Four::v)*>(d + first) = four.v;
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (Column(first, i) < limit) d[Column(first, i)] = four.At(i);
      }
    }
  }

  // C and the bias of a pass's columns.
  __device__ __forceinline__ void Add(int pass, int first, float4& sums) const {
    const bool has_c = args.beta != 0.0f, together = c_like && Together(first);
    const Element* const c = RowOf(args.c, args.c_batch, args.ldc, pass);
    float4 of_c = {};
    if (has_c && together) {
      Four four;
      four.v = *reinterpret_cast<const decltype(four.v)*>(c + first);
      of_c = four.Values(args.out);
    }
    const auto added = [&](int i, float sum, float addend) {
      const int col = Column(first, i);
      if (col >= limit) return sum;
      if (has_c && !together) addend = LoadAs(c, col, args.out);
      float bias = 0.0f;
      if (args.bias != nullptr) {
        bias = LoadAs(args.bias, n0 + col, args.bias_is_f32 ? OutType::kF32 : args.out);
      }
      return __fadd_rn(__fmaf_rn(args.beta, addend, sum), bias);
    };
    sums = make_float4(added(0, sums.x, of_c.x), added(1, sums.y, of_c.y), added(2, sums.z, of_c.z),
                       added(3, sums.w, of_c.w));
  }
};

}  // namespace gemmd::kernels::cuda
