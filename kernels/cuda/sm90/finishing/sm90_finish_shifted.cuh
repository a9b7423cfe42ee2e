// Rows of D that begin or end within four columns, as those of an odd n do: for Finisher
// (sm90_finish.cuh), whose threads take four columns each of what was staged.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/finishing/sm90_four_in_memory.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

// Each thread's columns begin where four of D's row do, up to three further to the left. What the
// first thread has beyond the left edge of what is staged it takes from the right edge instead,
// which nobody else has.
template <class Finisher>
struct ShiftedRows {
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
                              finish.Bytes() % 4);
    further = static_cast<int>(kRowsAtOnce * args.ldd % 4);
    const uint64_t apart = reinterpret_cast<uint64_t>(args.c) - reinterpret_cast<uint64_t>(args.d);
    c_like = apart % (4 * finish.Bytes()) == 0 &&
             ((args.ldc - args.ldd) | (args.c_batch - args.d_batch)) % 4 == 0;
  }

  // Of D, or of C: this thread's row of a pass, from n0 on.
  __device__ __forceinline__ char* RowOf(const void* base, int64_t batch, int64_t ld,
                                         int pass) const {
    const int64_t at = finish.out.tile.batch * batch + (step.m + pass * kRowsAtOnce) * ld + n0;
    return static_cast<char*>(const_cast<void*>(base)) + at * finish.Bytes();
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

  __device__ __forceinline__ bool HasColumns() const {
    return finish.across * 4 < width && limit > 0;
  }

  // This thread's columns of what was staged, with C and the bias.
  __device__ __forceinline__ void Take(float4 (&sums)[kPasses]) const {
    if (!HasColumns()) return;
    const bool adds = args.beta != 0.0f || args.bias != nullptr;
    if (adds) {
      // Where they lie, which nobody else reads: rolled, as it is much code.
#pragma unroll 1
      for (int pass = 0; pass < kPasses; ++pass) {
        if (HasRow(pass)) Add(finish.StagedRow(pass), pass, First(pass));
      }
    }
    const float alpha = adds ? 1.0f : args.alpha;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const uint32_t source = finish.StagedRow(pass);
      const int first = First(pass);
      const auto at = [&](int i) {
        return __fmul_rn(ptx::LoadShared(source + Column(first, i) * 4), alpha);
      };
      sums[pass] = make_float4(at(0), at(1), at(2), at(3));
    }
  }

  // C and the bias to a pass's columns.
  __device__ __forceinline__ void Add(uint32_t staged, int pass, int first) const {
    const bool has_c = args.beta != 0.0f, together = c_like && Together(first);
    const char* const c = RowOf(args.c, args.c_batch, args.ldc, pass);
    float4 of_c = {};
    if (has_c && together) {
      FourInMemory four;
      four.Load(c + first * finish.Bytes(), finish.is_f32);
      of_c = four.Values(args.out);
    }
    const OutType bias_type = args.bias_is_f32 ? OutType::kF32 : args.out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int col = Column(first, i);
      if (col >= limit) continue;
      float addend = i == 0 ? of_c.x : i == 1 ? of_c.y : i == 2 ? of_c.z : of_c.w;
      if (has_c && !together) addend = LoadAs(c, col, args.out);
      const float bias = args.bias != nullptr ? LoadAs(args.bias, n0 + col, bias_type) : 0.0f;
      const uint32_t at = staged + col * 4;
      const float sum = __fmul_rn(ptx::LoadShared(at), args.alpha);
      ptx::StoreShared(at, __fadd_rn(__fmaf_rn(args.beta, addend, sum), bias));
    }
  }

  __device__ __forceinline__ void Put(const float4 (&sums)[kPasses]) const {
    if (!HasColumns()) return;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!HasRow(pass)) return;
      const int first = First(pass);
      const FourInMemory four = FourInMemory::Of(sums[pass], args.out);
      char* const d = RowOf(args.d, args.d_batch, args.ldd, pass);
      if (Together(first)) {
        four.Store(d + first * finish.Bytes(), finish.is_f32);
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int col = Column(first, i);
        if (col < limit) four.StoreOne(d + col * finish.Bytes(), i, finish.is_f32);
      }
    }
  }
};

}  // namespace gemmd::kernels::cuda
