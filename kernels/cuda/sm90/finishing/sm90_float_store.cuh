// FP32 results, finished on their way to D: by way of staging, from where a thread takes four
// neighbours of a row, so that C and D are read and written in whole runs of a row.

#pragma once

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C, class Out>
struct FloatStore {
  static_assert(!C.stages_halves(), "16 rows are staged");
  // Tiles of A's rows: a warp's 16 rows of up to 32 columns; else a warpgroup's 64 columns.
  static constexpr int kThreads = C.skinny() ? 128 : 32;
  static constexpr int kAcross = C.skinny() ? 16 : 8;  // threads along a row
  static constexpr int kRowsAtOnce = kThreads / kAcross;
  // Chunks that are staged at a time.
  static constexpr int kStep = Out::kStepF32 < 4 ? Out::kStepF32 : 4;
  static constexpr int kPasses = C.skinny() ? kStep : 16 / kRowsAtOnce;

  // What is added to a step's sums: on its way while these are staged.
  struct Addends {
    float4 c[kPasses];
    float4 bias;
  };

  const Out& out;
  const GemmArgs& args;
  int across;
  int row;
  bool whole;  // four columns are in D or outside, and can be read and written at once

  __device__ __forceinline__ explicit FloatStore(const Out& out) : out(out), args(out.args) {
    const int thread = C.skinny() ? out.warp * 32 + out.lane : out.lane;
    across = thread % kAcross;
    row = thread / kAcross;
    uint64_t elements = args.n | args.ldd | args.d_batch;
    uint64_t bytes = reinterpret_cast<uint64_t>(args.d) | reinterpret_cast<uint64_t>(args.bias);
    if (args.beta != 0.0f) {
      elements |= args.ldc | args.c_batch;
      bytes |= reinterpret_cast<uint64_t>(args.c);
    }
    whole = elements % 4 == 0 && bytes % 16 == 0;
  }

  // A thread's place in D of chunks [first, last): the first pass's row, its columns, and how many
  // rows and columns from there on D has.
  struct Place {
    int m, n, rows, columns;
  };
  __device__ __forceinline__ Place At(int sub, int first, int last) const {
    const int chunks = last - first;
    Place place;
    place.m = (C.skinny() ? out.tile.col0 + first * 8 : out.SubRow(sub) + out.warp * 16) + row;
    place.n = (C.skinny() ? out.SubRow(sub) : out.tile.col0 + first * 8) + across * 4;
    const int staged = C.skinny() ? 64 : chunks * 8;
    place.columns = min(staged - across * 4, static_cast<int>(args.n) - place.n);
    place.rows = min((C.skinny() ? chunks * 8 : 16) - row, static_cast<int>(args.m) - place.m);
    return place;
  }

  __device__ __forceinline__ float4 Load(const float* from, int columns) const {
    float4 v = make_float4(0, 0, 0, 0);
    if (whole) {
      if (columns > 0) v = *reinterpret_cast<const float4*>(from);
    } else {
      if (columns > 0) v.x = from[0];
      if (columns > 1) v.y = from[1];
      if (columns > 2) v.z = from[2];
      if (columns > 3) v.w = from[3];
    }
    return v;
  }
  __device__ __forceinline__ Addends Fetch(const Place& at) const {
    Addends addends;
    addends.bias = make_float4(0, 0, 0, 0);
    if (args.bias != nullptr) {
      addends.bias = Load(static_cast<const float*>(args.bias) + at.n, at.columns);
    }
#pragma unroll
    for (float4& c : addends.c) c = make_float4(0, 0, 0, 0);
    if (args.beta == 0.0f) return addends;
    const float* const c =
        static_cast<const float*>(args.c) + out.tile.batch * args.c_batch + at.m * args.ldc + at.n;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (pass * kRowsAtOnce >= at.rows) break;
      addends.c[pass] = Load(c + pass * kRowsAtOnce * args.ldc, at.columns);
    }
    return addends;
  }

  // The i-th chunk of those that are staged.
  __device__ __forceinline__ void Stage(int i, float4 v) const {
    if constexpr (C.skinny()) {
      out.StageF32(i, 0, v);
    } else {
      const uint32_t at = out.staging + out.lane / 4 * Out::kPitchF32 + i * 32 + out.lane % 4 * 8;
      ptx::StoreShared2(at, make_float2(v.x, v.y));
      ptx::StoreShared2(at + 8 * Out::kPitchF32, make_float2(v.z, v.w));
    }
  }

  // What was staged goes to D.
  __device__ __forceinline__ void Put(const Place& at, const Addends& addends) const {
    const uint32_t source = out.staging + row * Out::kPitchF32 + across * 16;
    float4 v[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float4 sum = ptx::LoadShared4(source + pass * kRowsAtOnce * Out::kPitchF32);
      const float4 c = addends.c[pass], b = addends.bias;
      v[pass] = make_float4(Finished(sum.x, c.x, b.x), Finished(sum.y, c.y, b.y),
                            Finished(sum.z, c.z, b.z), Finished(sum.w, c.w, b.w));
    }
    if (args.activation != ActivationType::kNone) Activate(v);
    float* target =
        static_cast<float*>(args.d) + out.tile.batch * args.d_batch + at.m * args.ldd + at.n;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (pass * kRowsAtOnce >= at.rows) break;
      float* const to = target + pass * kRowsAtOnce * args.ldd;
      if (whole) {
        ptx::StoreGlobal4If(at.columns > 0, to, v[pass]);
      } else {
        if (at.columns > 0) to[0] = v[pass].x;
        if (at.columns > 1) to[1] = v[pass].y;
        if (at.columns > 2) to[2] = v[pass].z;
        if (at.columns > 3) to[3] = v[pass].w;
      }
    }
  }

 private:
  __device__ __forceinline__ float Finished(float sum, float c, float bias) const {
    return __fadd_rn(__fmaf_rn(args.beta, c, __fmul_rn(sum, args.alpha)), bias);
  }
  __device__ __forceinline__ void Activate(float4 (&values)[kPasses]) const {
    WithActivation(args.activation, [&]<ActivationType kType>() {
#pragma unroll
      for (float4& v : values) {
        v = make_float4(Activated<kType>(v.x, 1.0f), Activated<kType>(v.y, 1.0f),
                        Activated<kType>(v.z, 1.0f), Activated<kType>(v.w, 1.0f));
      }
    });
  }
};

// A warpgroup's whole sums. The loop is rolled but for what picks registers: its code comes from
// memory line by line.
template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreFloats(const Out& out,
                                            const Sum<C> (&result)[C.result_regs()]) {
  using Store = FloatStore<C, Out>;
  constexpr int kOfSub = (Out::kChunks + Store::kStep - 1) / Store::kStep;
  constexpr int kSteps = C.row_subs() * kOfSub;
  const Store store(out);
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const int first = step % kOfSub * Store::kStep;
    const auto at = store.At(step / kOfSub, first, min(first + Store::kStep, Out::kChunks));
    const auto addends = store.Fetch(at);
    out.Sync();
#pragma unroll
    for (int of = 0; of < kSteps; ++of) {
      if (of != step) continue;
#pragma unroll
      for (int i = 0; i < Store::kStep; ++i) {
        const int chunk = of % kOfSub * Store::kStep + i;
        if (chunk >= Out::kChunks) break;
        const Sum<C>* const v = result + (of / kOfSub * Out::kChunks + chunk) * 4;
        store.Stage(i, make_float4(BitsOf(v[0]), BitsOf(v[1]), BitsOf(v[2]), BitsOf(v[3])));
      }
    }
    out.Sync();
    store.Put(at, addends);
  }
}

}  // namespace gemmd::kernels::cuda
