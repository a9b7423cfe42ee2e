// Operands of sm90_any_gemm on their way into shared memory: 16 bytes at a time, of neighbours
// along k, converted to what the multiplication takes.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/element.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kAnyTile = 64;  // rows and columns of D a CTA computes
inline constexpr int kAnyThreads = 256;
inline constexpr int kStageBytes = 128;  // of a tile's row, a stage
inline constexpr int kChunks = kStageBytes / 16;
inline constexpr int kPitch = kStageBytes + 16;  // odd in 16-byte units: no bank conflicts
inline constexpr int kChunksPerThread = kAnyTile * kChunks / kAnyThreads;

// One batch item of an operand.
struct OperandView {
  const char* data;
  int64_t row_stride, k_stride;  // in elements
  int64_t rows, k;
  ElementType type;
  bool vectors;     // chunks that are whole can be loaded as vectors
  bool along_rows;  // neighbours in memory are rows, not k's
};

__device__ __forceinline__ OperandView ViewOf(const AnyOperand& operand, ElementType type,
                                              int64_t batch, int64_t rows, int64_t k,
                                              int chunk_elements) {
  const int bytes = ElementBytes(type);
  OperandView view;
  view.data = static_cast<const char*>(operand.data) + batch * operand.batch_stride * bytes;
  view.row_stride = operand.row_stride;
  view.k_stride = operand.k_stride;
  view.rows = rows;
  view.k = k;
  view.type = type;
  const int unit = chunk_elements * bytes;  // 8 or 16
  view.vectors = operand.k_stride == 1 && reinterpret_cast<uintptr_t>(view.data) % unit == 0 &&
                 (operand.row_stride * bytes) % unit == 0;
  view.along_rows = operand.k_stride > operand.row_stride;
  return view;
}

// The first `valid` of kCount neighbours along k as they are, packed into words, `step` bytes apart
// unless they can be loaded as a vector. The rest is 0, a zero in every type.
template <int kBytes, int kCount>
__device__ __forceinline__ void LoadWords(const char* from, int64_t step, int valid, bool vector,
                                          uint32_t (&words)[kBytes * kCount / 4]) {
  constexpr int kWords = kBytes * kCount / 4;
  constexpr int kPerWord = 4 / kBytes;
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = 0;
  if (vector && valid >= kCount) {
    if constexpr (kWords == 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from);
      words[0] = x.x;
      words[1] = x.y;
      words[2] = x.z;
      words[3] = x.w;
    } else {
      const uint2 x = *reinterpret_cast<const uint2*>(from);
      words[0] = x.x;
      words[1] = x.y;
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (j < valid) words[j / kPerWord] |= LoadCode(from, 0, kBytes) << (j % kPerWord * 8 * kBytes);
    from += step;
  }
}

// A chunk of elements that are multiplied as they are.
template <int kBytes>
__device__ __forceinline__ uint4 LoadRaw(const char* from, int64_t step, int valid, bool vector) {
  uint32_t words[4];
  LoadWords<kBytes, 16 / kBytes>(from, step, valid, vector, words);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// 8 elements of E4M3 as FP16, which holds them exactly.
__device__ __forceinline__ uint4 LoadE4m3(const char* from, int64_t step, int valid, bool vector) {
  uint32_t words[2];
  LoadWords<1, 8>(from, step, valid, vector, words);
  return make_uint4(ptx::F16x2FromE4m3x2(static_cast<uint16_t>(words[0])),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(words[0] >> 16)),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(words[1])),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(words[1] >> 16)));
}

// 8 elements of E5M2 as FP16, whose upper byte it is.
__device__ __forceinline__ uint4 LoadE5m2(const char* from, int64_t step, int valid, bool vector) {
  uint32_t words[2];
  LoadWords<1, 8>(from, step, valid, vector, words);
  return make_uint4(__byte_perm(words[0], 0, 0x1404), __byte_perm(words[0], 0, 0x3424),
                    __byte_perm(words[1], 0, 0x1404), __byte_perm(words[1], 0, 0x3424));
}

// `value`, but the compiler cannot tell. What depends on it is computed again in each stage instead
// of being kept in registers over the loop, which spilled.
__device__ __forceinline__ int Opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// A stage of one operand's tile, kChunksPerThread chunks a thread. Lanes run along whichever
// dimension is dense.
template <class Math>
struct StageLoader {
  uint4 chunks[kChunksPerThread];

  static __device__ __forceinline__ int RowOf(const OperandView& view, int id) {
    return view.along_rows ? id % kAnyTile : id / kChunks;
  }
  static __device__ __forceinline__ int PartOf(const OperandView& view, int id) {
    return view.along_rows ? id / kAnyTile : id % kChunks;
  }

  __device__ __forceinline__ void Fetch(const OperandView& view, int64_t row0, int64_t k0) {
    const int bytes = ElementBytes(view.type);
    const char* origin = view.data + (row0 * view.row_stride + k0 * view.k_stride) * bytes;
    const int rows = static_cast<int>(min(view.rows - row0, static_cast<int64_t>(kAnyTile)));
    const int ks = static_cast<int>(min(view.k - k0, static_cast<int64_t>(kStageBytes)));
    const int thread = Opaque(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      const int row = RowOf(view, thread + i * kAnyThreads);
      const int k = PartOf(view, thread + i * kAnyThreads) * Math::kChunkElements;
      const int valid = row < rows ? ks - k : 0;  // at most 0: no element of the chunk exists
      chunks[i] =
          Math::LoadChunk(view.type, origin + (row * view.row_stride + k * view.k_stride) * bytes,
                          view.k_stride * bytes, valid, view.vectors);
    }
  }

  // Into tile[kAnyTile][kPitch].
  __device__ __forceinline__ void Store(const OperandView& view, unsigned char* tile) const {
    const int thread = Opaque(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      const int id = thread + i * kAnyThreads;
      *reinterpret_cast<uint4*>(tile + RowOf(view, id) * kPitch + PartOf(view, id) * 16) =
          chunks[i];
    }
  }
};

}  // namespace gemmd::kernels::cuda
