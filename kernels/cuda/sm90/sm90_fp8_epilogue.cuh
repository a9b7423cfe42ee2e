// From results to D: alpha, C, bias and activation, rounding, and whole 16-byte units of rows by
// way of shared memory. Plain stores: copies of rows by the copy engine were measured and are
// slower, since one lane after the other has to start its own.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/ptx/convert.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_scales.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// What a bias is where there is none.
static __device__ const float kZero = 0.0f;

__device__ __forceinline__ uint32_t Pack2(float low, float high, OutType out) {
  uint32_t packed;
  if (out == OutType::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

__device__ __forceinline__ float2 Unpack2(uint32_t packed, OutType out) {
  if (out == OutType::kBF16) {
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
  }
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}

__device__ __forceinline__ float LoadAs(const void* base, int64_t index, OutType type) {
  switch (type) {
    case OutType::kF32:
      return static_cast<const float*>(base)[index];
    case OutType::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(base)[index]);
    default:
      return __half2float(static_cast<const __half*>(base)[index]);
  }
}

__device__ __forceinline__ void StoreAs(void* base, int64_t index, OutType type, float value) {
  switch (type) {
    case OutType::kF32:
      static_cast<float*>(base)[index] = value;
      break;
    case OutType::kBF16:
      static_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16_rn(value);
      break;
    default:
      static_cast<__half*>(base)[index] = __float2half_rn(value);
  }
}

// One warpgroup's way to D. A chunk is 8 columns of the column side for the warpgroup's 64 rows:
// four values a thread, at (row, col) = (16 warp + lane / 4, 2 (lane % 4)), its right neighbour,
// and the same 8 rows further down.
//
// `kElsewhere`: more than rounding is the work of sm90_finish.cuh, or of another kernel.
template <GemmConfig C, bool kElsewhere = false>
struct Epilogue {
  const GemmArgs& args;
  uint32_t staging;  // this warp's (tiled) or this warpgroup's (skinny)
  int warp;          // in the warpgroup
  int lane;
  int group;
  Tile tile;
  bool general;     // more than rounding to 16 bits is asked for; never `kElsewhere`
  bool aligned;     // rows of D start at multiples of 16 bytes
  bool whole;       // and end at one: every unit of 16 bytes is in D or outside
  uint64_t policy;  // of L2 for D
  typename ResultScalesOf<C>::Type scales;

  static constexpr int kPitch = C.store_pitch();
  static constexpr int kPitchF32 = C.skinny()          ? C.kSkinnyPitchF32
                                   : C.stages_halves() ? kPitch / 2
                                                       : kPitch;
  static constexpr int kChunks = C.own_cols() / 8;
  // Chunks that staging holds, rounded and in FP32.
  static constexpr int kStep = C.skinny() ? C.staged_cols() / 8 : 8;
  static constexpr int kStepF32 = C.stages_halves() ? 2 : kStep > 1 ? kStep / 2 : 1;

  __device__ Epilogue(const GemmLaunch& launch, const SmemLayout<C>& smem, int math_warp, int lane)
      : args(launch.args),
        warp(math_warp % 4),
        lane(lane),
        group(math_warp / 4 % C.groups),
        scales(smem, group) {
    staging = smem.base + SmemLayout<C>::kStore + group * C.store_group_bytes() +
              (C.skinny() ? 0 : warp * C.staged_rows() * kPitch);
    general = !kElsewhere && (args.out == OutType::kF32 || args.alpha != 1.0f ||
                              args.beta != 0.0f || args.bias != nullptr || args.relu);
    aligned =
        args.ldd % 8 == 0 && args.d_batch % 8 == 0 && reinterpret_cast<uint64_t>(args.d) % 16 == 0;
    whole = aligned && args.n % 8 == 0;
    policy = launch.streams_b ? ptx::kEvictLast : ptx::kEvictNormal;
  }

  // The scales of a tile's results: asked for as it begins, and there when it is stored.
  __device__ __forceinline__ void FetchScales(const Tile& next) {
    if constexpr (C.scales_results()) {
      const int row0 = next.row0 + (C.alternates ? 0 : group * C.row_subs() * 64);
      scales.Fetch(args, next, row0, warp * 32 + lane);
    }
  }
  __device__ __forceinline__ void AwaitScales() {
    if constexpr (C.scales_results()) scales.Await(kStagingBarrier + group, warp, lane);
  }

  // First row, on the row side, of the warpgroup's sub-tile.
  __device__ int SubRow(int sub) const {
    return tile.row0 + ((C.alternates || C.splits_cols ? 0 : group * C.row_subs()) + sub) * 64;
  }

  // Among those who share the staging area: what was staged is there, or may be overwritten.
  __device__ void Sync() const {
    __syncwarp();  // lanes leave CopyOut at different times, and the barrier takes whole warps
    if constexpr (C.skinny()) ptx::NamedBarrier(kStagingBarrier + group, 128);
  }

  // Rounds a chunk into staging; `first` is the chunk at its left edge.
  __device__ __forceinline__ void Stage(int chunk, int first, float4 v) const {
    const uint32_t up = Pack2(v.x, v.y, args.out);
    const uint32_t down = Pack2(v.z, v.w, args.out);
    if constexpr (C.skinny()) {
      // [cols][64]: the transposing store turns rows of n into runs along n.
      const uint32_t at =
          staging + ((chunk - first) * 8 + lane % 8) * kPitch + warp * 32 + lane / 8 % 2 * 16;
      ptx::StMatrix2Transposed(at, up, down);
    } else {
      ptx::StMatrix2(staging + lane % 16 * kPitch + (chunk - first) * 16, up, down);
    }
  }

  // Tiled: this chunk and its right neighbour at once.
  __device__ __forceinline__ void StagePair(int chunk, int first, float4 left, float4 right) const {
    const uint32_t at = staging + lane % 16 * kPitch + (chunk - first) * 16 +
                        (lane & 16);  // the upper lanes' is 16
    ptx::StMatrix4(at, Pack2(left.x, left.y, args.out), Pack2(left.z, left.w, args.out),
                   Pack2(right.x, right.y, args.out), Pack2(right.z, right.w, args.out));
  }

  // The same in FP32, for Finish.
  __device__ __forceinline__ void StageF32(int chunk, int first, float4 v) const {
    const int row = lane / 4;
    const int col = (chunk - first) * 8 + lane % 4 * 2;
    if constexpr (C.skinny()) {
      const uint32_t at = staging + col * kPitchF32 + (warp * 16 + row) * 4;
      ptx::StoreShared(at, v.x);
      ptx::StoreShared(at + kPitchF32, v.y);
      ptx::StoreShared(at + 32, v.z);
      ptx::StoreShared(at + kPitchF32 + 32, v.w);
    } else {
      const uint32_t at = staging + row * kPitchF32 + col * 4;
      ptx::StoreShared(at, v.x);
      ptx::StoreShared(at + 4, v.y);
      ptx::StoreShared(at + 8 * kPitchF32, v.z);
      ptx::StoreShared(at + 8 * kPitchF32 + 4, v.w);
    }
  }

  // What was staged of chunks [first, last) goes to D, in units of 8 elements of a row: where D's
  // rows begin or end within a unit.
  __device__ __forceinline__ void CopyUnits(int sub, int first, int last) const {
    uint16_t* d = static_cast<uint16_t*>(args.d) + tile.batch * args.d_batch;
    if constexpr (C.skinny()) {
      const int n = SubRow(sub) + lane % 8 * 8;
      for (int i = warp * 4 + lane / 8; i < (last - first) * 8; i += 16) {
        CopyUnit(d, staging + i * kPitch + lane % 8 * 16, tile.col0 + first * 8 + i, n);
      }
    } else {
      const int units = last - first;
#pragma unroll 1
      for (int i = lane; i < units * 16; i += 32) {
        const int row = i / units;
        const int unit = i - row * units;
        CopyUnit(d, staging + row * kPitch + unit * 16, SubRow(sub) + warp * 16 + row,
                 tile.col0 + (first + unit) * 8);
      }
    }
  }

  // The same where a unit is in D or outside: eight lanes a row, everything loaded before anything
  // is stored, and nothing to jump over, which a cold instruction cache would pay for.
  __device__ __forceinline__ void CopyWhole(int sub, int first, int last) const {
    const int unit = lane % 8;
    if constexpr (C.skinny()) {
      const int n = SubRow(sub) + unit * 8;
      const int row = warp * 4 + lane / 8;
      CopyRows<(C.staged_cols() + 15) / 16, 16>(
          staging + row * kPitch + unit * 16, tile.col0 + first * 8 + row, tile.col0 + last * 8, n);
    } else {
      const int n = unit < last - first ? tile.col0 + (first + unit) * 8 : kBeyond;
      const int row = lane / 8;
      CopyRows<4, 4>(staging + row * kPitch + unit * 16, SubRow(sub) + warp * 16 + row, kBeyond, n);
    }
  }

  // Chunks [first, first + 8) of the upper 8 of a warp's 16 rows, or of the lower ones, by way of a
  // staging area of 8 rows. `words`: each chunk's, rounded.
  template <bool kWhole>
  __device__ __forceinline__ void StoreHalf(int sub, int first, int lower,
                                            const uint32_t (&words)[8]) const {
    Sync();
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      ptx::StMatrix4(staging + SwizzledUnit(lane % 8, i + lane / 8), words[i], words[i + 1],
                     words[i + 2], words[i + 3]);
    }
    Sync();
    const int row = lane / 8, unit = lane % 8;
    const int m = SubRow(sub) + warp * 16 + lower * 8 + row, n = tile.col0 + (first + unit) * 8;
    uint16_t* const d = static_cast<uint16_t*>(args.d) + tile.batch * args.d_batch;
    const uint32_t upper = staging + SwizzledUnit(row, unit);
    const uint32_t sources[] = {upper, (upper ^ 64) + 4 * kPitch};  // four rows further down
    if constexpr (kWhole) {
      const int rows = static_cast<int>(args.m) - m;
      const bool inside = n < static_cast<int>(args.n);
      const float4 units[] = {ptx::LoadShared4(sources[0]), ptx::LoadShared4(sources[1])};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ptx::StoreGlobal4If(inside && i * 4 < rows, d + (m + i * 4) * args.ldd + n, units[i],
                            policy);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) CopyUnit(d, i == 0 ? sources[0] : sources[1], m + i * 4, n);
    }
  }

  // A unit of each of `kCount` rows of D, `kApart` rows apart, from m on and below `end`.
  template <int kCount, int kApart>
  __device__ __forceinline__ void CopyRows(uint32_t source, int m, int end, int n) const {
    const int rows = min(end, static_cast<int>(args.m)) - m;
    const bool inside = n < static_cast<int>(args.n);
    uint16_t* target =
        static_cast<uint16_t*>(args.d) + tile.batch * args.d_batch + m * args.ldd + n;
    float4 units[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) units[i] = ptx::LoadShared4(source + i * kApart * kPitch);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      uint16_t* const unit = target + i * kApart * args.ldd;
      if constexpr (C.guides_l2()) {
        ptx::StoreGlobal4If(inside && i * kApart < rows, unit, units[i], policy);
      } else {
        ptx::StoreGlobal4If(inside && i * kApart < rows, unit, units[i]);
      }
    }
  }

  __device__ __forceinline__ void CopyUnit(uint16_t* d, uint32_t source, int m, int n) const {
    if (m >= static_cast<int>(args.m)) return;
    uint16_t* target = d + m * args.ldd + n;
    const int left = static_cast<int>(args.n) - n;
    if (aligned && left >= 8) {
      const float4 v = ptx::LoadShared4(source);
      *reinterpret_cast<float4*>(target) = v;
    } else {
      for (int i = 0; i < min(left, 8); ++i) target[i] = ptx::LoadShared16(source + i * 2);
    }
  }

  // All results of a thread, where they lie: alpha, the bias of their columns, ReLU.
  __device__ __forceinline__ void Adjust(Sum<C> (&result)[C.result_regs()]) const {
    static_assert(!C.skinny(), "columns are D's");
    const bool has = args.bias != nullptr;
    const float* const bias = has ? static_cast<const float*>(args.bias) : &kZero;
    const int last = has ? static_cast<int>(args.n) - 1 : 0;  // results behind it go nowhere
    const float floor = args.relu ? 0.0f : -__builtin_inff();
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int n = tile.col0 + chunk * 8 + lane % 4 * 2;
      const float of_cols[] = {bias[min(n, last)], bias[min(n + 1, last)]};
#pragma unroll
      for (int sub = 0; sub < C.row_subs(); ++sub) {
        Sum<C>* const v = result + (sub * kChunks + chunk) * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float sum = __fmaf_rn(BitsOf(v[i]), args.alpha, of_cols[i % 2]);
          v[i] = FromBits<Sum<C>>(ptx::MaxNaN(sum, floor));  // NaN stays NaN
        }
      }
    }
  }

  // What was staged in FP32 of chunks [first, last): alpha, C, bias, activation, D. Neighbouring
  // lanes take neighbouring n.
  __device__ void Finish(int sub, int first, int last) const {
    const int width = (last - first) * 8;
    if constexpr (C.skinny()) {
      for (int i = warp * 32 + lane; i < width * 64; i += 128) {
        FinishOne(staging + i / 64 * kPitchF32 + i % 64 * 4, tile.col0 + first * 8 + i / 64,
                  SubRow(sub) + i % 64);
      }
    } else {
      for (int row = 0; row < 16; ++row) {
        for (int col = lane; col < width; col += 32) {
          FinishOne(staging + row * kPitchF32 + col * 4, SubRow(sub) + warp * 16 + row,
                    tile.col0 + first * 8 + col);
        }
      }
    }
  }

  __device__ void FinishOne(uint32_t source, int m, int n) const {
    if (m >= args.m || n >= args.n) return;
    float value = ptx::LoadShared(source) * args.alpha;
    if (args.beta != 0.0f) {
      value += args.beta * LoadAs(args.c, tile.batch * args.c_batch + m * args.ldc + n, args.out);
    }
    if (args.bias != nullptr) {
      value += LoadAs(args.bias, n, args.bias_is_f32 ? OutType::kF32 : args.out);
    }
    if (args.relu && value < 0.0f) value = 0.0f;  // written so that NaN stays NaN
    StoreAs(args.d, tile.batch * args.d_batch + m * args.ldd + n, args.out, value);
  }
};

}  // namespace gemmd::kernels::cuda
