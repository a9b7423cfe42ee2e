// What is added to a thread's sums, where these lie in registers, for results of 16 bits: C and the
// bias, by loads. Nothing branches from number to number, so that all of them are on their way at
// one time.

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

// The same place, from which the compiler knows nothing before it is asked for: else what a thread
// needs to finish a tile is made in front of all tiles, and takes registers while they multiply.
template <class Out>
__device__ __forceinline__ Out Hidden(Out out) {
  asm volatile("" : "+r"(out.lane), "+r"(out.warp), "+r"(out.staging));
  return out;
}

// `fn` with the type as a constant.
template <class Fn>
__device__ __forceinline__ void WithOutType(OutType type, Fn fn) {
  if (type == OutType::kF32) {
    fn.template operator()<OutType::kF32>();
  } else if (type == OutType::kBF16) {
    fn.template operator()<OutType::kBF16>();
  } else {
    fn.template operator()<OutType::kF16>();
  }
}

// The two 16-bit values of each word, as C's.
template <int kWords>
__device__ __forceinline__ void UnpackAll(const uint32_t (&words)[kWords], OutType type,
                                          float (&c)[2 * kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const float2 pair = Unpack2(words[i], type);
    c[2 * i] = pair.x;
    c[2 * i + 1] = pair.y;
  }
}

// One of 16 bits as it lies there, if it is wanted: by a predicate and not by a branch.
__device__ __forceinline__ uint32_t Load16If(bool wanted, const void* base, int64_t at) {
  return wanted ? static_cast<const uint16_t*>(base)[at] : 0;
}

// C of `kCount` chunks of 8 of the column side from `first` on, 0 outside of D.
template <GemmConfig C, int kCount, class Out>
__device__ __forceinline__ void LoadC(const Out& out, int sub, int first,
                                      uint32_t (&c)[4 * kCount]) {
  const GemmArgs& args = out.args;
  const int across = out.SubRow(sub) + out.warp * 16 + out.lane / 4;  // of the row side
  const int along = out.tile.col0 + first * 8 + out.lane % 4 * 2;
  const int64_t base = out.tile.batch * args.c_batch;
#pragma unroll
  for (int i = 0; i < 4 * kCount; ++i) {
    const int row = across + i % 4 / 2 * 8, column = along + i / 4 * 8 + i % 2;
    const int m = C.skinny() ? column : row, n = C.skinny() ? row : column;
    const bool inside = m < static_cast<int>(args.m) && n < static_cast<int>(args.n);
    c[i] = Load16If(inside, args.c, base + m * args.ldc + n);
  }
}

// The bias likewise, as its type has it. Skinny: of the thread's two rows. Else of two columns of
// each chunk.
template <GemmConfig C, int kCount>
struct ChunkBias {
  static constexpr int kLoads = C.skinny() ? 2 : 2 * kCount;

  uint32_t v[kLoads];

  template <class Out>
  __device__ __forceinline__ void Load(const Out& out, int sub, int first) {
    const GemmArgs& args = out.args;
#pragma unroll
    for (uint32_t& x : v) x = 0;
    if (args.bias == nullptr) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int n = C.skinny() ? out.SubRow(sub) + out.warp * 16 + out.lane / 4 + i * 8
                               : out.tile.col0 + (first + i / 2) * 8 + out.lane % 4 * 2 + i % 2;
      const bool inside = n < static_cast<int>(args.n);
      if (!args.bias_is_f32) {
        v[i] = Load16If(inside, args.bias, n);
      } else if (inside) {
        v[i] = static_cast<const uint32_t*>(args.bias)[n];
      }
    }
  }
  // Of the i-th value.
  __device__ __forceinline__ float Of(int i, const GemmArgs& args) const {
    const uint32_t bits = v[C.skinny() ? i % 4 / 2 : i / 4 * 2 + i % 2];
    return args.bias_is_f32 ? __uint_as_float(bits) : Unpack2(bits, args.out).x;
  }
};

// The bias of a warp's part of a whole tile, zeros if there is none. Skinny: of a thread's two rows
// of each sub-tile. Else a lane has a column of each 32, and the others ask it.
template <GemmConfig C, class Out>
struct TileBias {
  static constexpr int kLoads = C.skinny() ? 2 * C.row_subs() : (C.cols + 31) / 32;

  float v[kLoads];

  // Whether there are registers to ask for it before the tile multiplies.
  static constexpr bool kAhead = C.result_regs() + C.accumulator_regs() <= 96;

  // Of `out.tile`.
  __device__ __forceinline__ void Load(const Out& out) {
    const GemmArgs& args = out.args;
#pragma unroll
    for (float& x : v) x = 0.0f;
    if (args.bias == nullptr) return;
    WithOutType(args.bias_is_f32 ? OutType::kF32 : args.out, [&]<OutType kType>() {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int n = C.skinny() ? out.SubRow(i / 2) + out.warp * 16 + out.lane / 4 + i % 2 * 8
                                 : out.tile.col0 + i * 32 + out.lane;
        if (n < static_cast<int>(args.n)) v[i] = LoadAs(args.bias, n, kType);
      }
    });
  }

  // Of a chunk's left or right column, by all lanes of the warp.
  __device__ __forceinline__ float OfColumn(int chunk, int right, int lane) const {
    static_assert(!C.skinny());
    return __shfl_sync(0xffffffff, v[chunk / 4], chunk % 4 * 8 + lane % 4 * 2 + right);
  }
};

}  // namespace gemmd::kernels::cuda
