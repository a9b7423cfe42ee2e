// The multiplications of sm90_any_gemm, all by mma.sync; FP32's as six of BF16 (float_parts.cuh).
// Each thread owns 4 rows by 4 columns of the 64x64 tile; Row(r) and Col(c) tell which, Index(r, c)
// where the accumulator is.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm_load.cuh"
#include "kernels/cuda/ops/float_parts.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kSide = 4;  // rows and columns of a thread

// A stage of an operand in shared memory. How far its lines are apart is for its Math to know.
struct StagedTile {
  const unsigned char* at;
  bool along_rows;  // lines are k's, of 64 rows; else rows, of k's
};

// Eight warps, two along m and four along n; each 32 x 16, as 2 x 2 fragments (ptx/mma.cuh).
struct MmaLayout {
  static __device__ __forceinline__ int WarpRow() { return threadIdx.x / 32 % 2 * 32; }
  static __device__ __forceinline__ int WarpCol() { return threadIdx.x / 64 * 16; }
  static __device__ __forceinline__ int Row(int r) {
    return WarpRow() + r / 2 * 16 + r % 2 * 8 + threadIdx.x % 32 / 4;
  }
  static __device__ __forceinline__ int Col(int c) {
    return WarpCol() + c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
  }
  static constexpr __device__ int Index(int r, int c) {
    return (r / 2 * 2 + c / 2) * 4 + r % 2 * 2 + c % 2;
  }

  // Fragments of 16 lines and 32 bytes of k, or of 16 k's and 32 bytes of rows: `row` is the first
  // row, and of the matrices 1 and 2 the one `second_along_k` lies further along k, the other along
  // the rows.
  struct Fragments {
    uint32_t at;
    int step;  // from 32 bytes of k to the next
    int next;  // from 16 rows to the next
    bool transposed;

    __device__ __forceinline__ Fragments(const StagedTile& tile, int pitch, int row,
                                         bool second_along_k)
        : transposed(tile.along_rows) {
      const int lane = threadIdx.x % 32;
      const int matrix = lane / 8;
      const int along_k = second_along_k ? matrix % 2 : matrix / 2;
      const int along_rows = second_along_k ? matrix / 2 : matrix % 2;
      const int line = lane % 8 + (transposed ? along_k : along_rows) * 8;
      const int unit = (transposed ? along_rows : along_k) * 16;
      at = static_cast<uint32_t>(__cvta_generic_to_shared(tile.at)) + line * pitch + unit +
           row * (transposed ? 2 : pitch);
      step = transposed ? 16 * pitch : 32;
      next = transposed ? 32 : 16 * pitch;
    }
    __device__ __forceinline__ void Load(int rows, uint32_t (&x)[4], int apart = 0) const {
      const uint32_t from = at + rows * next + apart;
      if (transposed) {
        ptx::LdMatrix4Transposed(from, x);
      } else {
        ptx::LdMatrix4(from, x);
      }
    }
  };

  template <class Acc, class Mma>
  static __device__ __forceinline__ void MultiplyBy(const StagedTile& a_tile,
                                                    const StagedTile& b_tile,
                                                    Acc (&acc)[kSide * kSide], Mma mma) {
    Fragments a(a_tile, kPitch, WarpRow(), false), b(b_tile, kPitch, WarpCol(), true);
#pragma unroll
    for (int k = 0; k < kStageBytes; k += 32) {
      uint32_t x[2][4], y[4];
      a.Load(0, x[0]);
      a.Load(1, x[1]);
      b.Load(0, y);
      a.at += a.step;
      b.at += b.step;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) mma(acc + (r * 2 + c) * 4, x[r], y + c * 2);
      }
    }
  }
};

// A stage as most types have it: elements of one size, as they are multiplied.
struct PlainStage : MmaLayout {
  static constexpr int kBuffers = 2;
  static constexpr int kStagedBytes = kTileBytes;

  static __device__ __forceinline__ void Put(unsigned char* tile, bool, int line, int unit,
                                             uint4 v) {
    *reinterpret_cast<uint4*>(tile + line * kPitch + unit * 16) = v;
  }
};

// The parts of a line lie behind one another. They take so much that there is one stage.
struct MathF32 : MmaLayout {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 4;
  static constexpr int kCtasPerSm = 1;  // registers for four chains of products at a time
  static constexpr bool kConverts = false;
  static constexpr bool kTransposes = true;

  static constexpr int kStageK = kChunks * kChunkElements;
  static constexpr int kBuffers = 1;
  // Bytes of one part of a line, and from one line to the next: odd in 16-byte units.
  static __device__ __forceinline__ int PartBytes(bool along_rows) {
    return 2 * (along_rows ? kAnyTile : kStageK);
  }
  static __device__ __forceinline__ int Pitch(bool along_rows) {
    return kFloatParts * PartBytes(along_rows) + 16;
  }
  static constexpr int kStagedBytes = kAnyTile * (kFloatParts * 2 * kStageK + 16);
  static_assert(kStageK * (kFloatParts * 2 * kAnyTile + 16) <= kStagedBytes);

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ void Put(unsigned char* tile, bool along_rows, int line,
                                             int unit, uint4 v) {
    const float x[] = {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w)};
    FloatPairParts parts[2];
    PartsOf(x, parts);
    unsigned char* const to = tile + line * Pitch(along_rows) + unit * 8;
#pragma unroll
    for (int part = 0; part < kFloatParts; ++part) {
      *reinterpret_cast<uint2*>(to + part * PartBytes(along_rows)) =
          make_uint2(parts[0].of[part], parts[1].of[part]);
    }
  }

  // What tensor cores add is truncated: each 16 k's have sums of their own, smallest products
  // first, and from there on FP32 additions.
  static __device__ __forceinline__ void Multiply(const StagedTile& a_tile,
                                                  const StagedTile& b_tile,
                                                  float (&acc)[kSide * kSide]) {
    Fragments a(a_tile, Pitch(a_tile.along_rows), WarpRow(), false);
    Fragments b(b_tile, Pitch(b_tile.along_rows), WarpCol(), true);
    const int a_apart = PartBytes(a_tile.along_rows), b_apart = PartBytes(b_tile.along_rows);
#pragma unroll
    for (int k = 0; k < kStageK; k += 16) {
      uint32_t x[2][kFloatParts][4], y[kFloatParts][4];
#pragma unroll
      for (int part = 0; part < kFloatParts; ++part) {
        b.Load(0, y[part], part * b_apart);
        a.Load(0, x[0][part], part * a_apart);
        a.Load(1, x[1][part], part * a_apart);
      }
      float sums[4][4] = {};
#pragma unroll
      for (int i = 0; i < kFloatProducts; ++i) {
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          ptx::MmaBf16(sums[tile], x[tile / 2][PartOfA(i)], y[PartOfB(i)] + tile % 2 * 2);
        }
      }
#pragma unroll
      for (int i = 0; i < kSide * kSide; ++i) acc[i] += sums[i / 4][i % 4];
      a.at += a.step;
      b.at += b.step;
    }
  }
};

struct MathF16 : PlainStage {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 8;
  static constexpr int kCtasPerSm = 2;
  static constexpr bool kTransposes = true;
  static constexpr bool kConverts = true;  // from bytes

  static __device__ __forceinline__ uint4 Converted(ElementType type, uint4 v) {
    if (type == ElementType::kE5M2) return F16OfE5m2(v);
    return type == ElementType::kE4M3 ? F16OfE4m3(v) : v;
  }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  float (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaF16);
  }
};

struct MathBf16 : PlainStage {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 8;
  static constexpr int kCtasPerSm = 2;
  static constexpr bool kTransposes = true;
  static constexpr bool kConverts = false;

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  float (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaBf16);
  }
};

struct MathI8 : PlainStage {
  using Accumulator = int;
  using Total = double;
  static constexpr int kChunkElements = 16;
  static constexpr int kCtasPerSm =
      1;  // FP64 totals and 64 single bytes in flight fill 128 registers
  static constexpr bool kConverts = false;
  static constexpr bool kTransposes = false;  // bytes cannot be

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  int (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaS8);
  }
};

}  // namespace gemmd::kernels::cuda
