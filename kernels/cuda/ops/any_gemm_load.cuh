// Operands of sm90_any_gemm on their way into shared memory, 16 bytes at a time and converted to
// what the multiplication takes. Rows begin anywhere: of a chunk the two units of 16 bytes around
// it are loaded, and its bytes taken out of them.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_parts.h"
#include "kernels/cuda/ops/element.cuh"
#include "kernels/cuda/ops/unaligned.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kAnyThreads = 256;
inline constexpr int kStageBytes = 128;  // of a tile's line, a stage
inline constexpr int kChunks = kStageBytes / 16;
inline constexpr int kPitch = kStageBytes + 16;  // odd in 16-byte units: no bank conflicts
inline constexpr int kTileBytes = kAnyTile * kPitch;
inline constexpr int kChunksPerThread = kAnyTile * kChunks / kAnyThreads;

// What lies next to what, and so what a line of the tile in shared memory is.
enum class Walk {
  kAlongK,     // a row's k's: a line is a row
  kAlongRows,  // a k's rows: a line is a k; bytes cannot be multiplied so
  kStrided,    // neither, or not so: element by element, a line is a row
};

// One batch item of an operand.
struct OperandView {
  const char* data;
  int64_t row_stride, k_stride;  // in elements
  int64_t rows;
  ElementType type;
  Walk walk;
  bool lanes_along_rows;  // of a strided one: neighbours in memory are rows, if any are
};

template <class Math>
__device__ __forceinline__ OperandView ViewOf(const AnyOperand& operand, ElementType type,
                                              int64_t batch, int64_t rows) {
  OperandView view;
  view.data = static_cast<const char*>(operand.data) +
              batch * operand.batch_stride * static_cast<int64_t>(ElementBytes(type));
  view.row_stride = operand.row_stride;
  view.k_stride = operand.k_stride;
  view.rows = rows;
  view.type = type;
  view.walk = operand.k_stride == 1                          ? Walk::kAlongK
              : operand.row_stride == 1 && Math::kTransposes ? Walk::kAlongRows
                                                             : Walk::kStrided;
  view.lanes_along_rows = operand.k_stride > operand.row_stride;
  return view;
}

// 8 elements of E4M3 as FP16, which holds them exactly.
__device__ __forceinline__ uint4 F16OfE4m3(uint4 v) {
  return make_uint4(ptx::F16x2FromE4m3x2(static_cast<uint16_t>(v.x)),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(v.x >> 16)),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(v.y)),
                    ptx::F16x2FromE4m3x2(static_cast<uint16_t>(v.y >> 16)));
}
// 8 elements of E5M2 as FP16, whose upper byte it is.
__device__ __forceinline__ uint4 F16OfE5m2(uint4 v) {
  return make_uint4(__byte_perm(v.x, 0, 0x1404), __byte_perm(v.x, 0, 0x3424),
                    __byte_perm(v.y, 0, 0x1404), __byte_perm(v.y, 0, 0x3424));
}

// Elements `step` bytes apart, packed.
template <int kBytes>
__device__ __forceinline__ uint4 Gathered(const char* from, int64_t step, int bytes) {
  constexpr int kPerWord = 4 / kBytes;
  uint32_t words[4] = {};
#pragma unroll
  for (int j = 0; j < 16 / kBytes; ++j) {
    if (j * kBytes < bytes) {
      words[j / kPerWord] |= LoadCode(from, 0, kBytes) << (j % kPerWord * 8 * kBytes);
    }
    from += step;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
template <class Math>
__device__ __forceinline__ uint4 Gathered(ElementType type, const char* from, int64_t step,
                                          int bytes) {
  constexpr int kBytes = 16 / Math::kChunkElements;
  if constexpr (Math::kConverts) {
    if (ElementBytes(type) == 1) return Gathered<1>(from, step, bytes);
  }
  return Gathered<kBytes>(from, step, bytes);
}

// A thread's chunks of one operand's tile, stage by stage: two, of lines or of units far apart.
template <class Math>
class StageLoader {
 public:
  __device__ __forceinline__ StageLoader(const OperandView& view, int64_t row0, int64_t k0)
      : view_(view), size_(ElementBytes(view.type)) {
    static_assert(kChunksPerThread == 2);
    const int thread = static_cast<int>(threadIdx.x);
    const bool across = view.walk == Walk::kStrided && view.lanes_along_rows;
    const int units = AlongRows() ? kAnyTile / kElements : kChunks;  // of a line
    line_ = across ? thread % kAnyTile : thread / units;
    unit_ = across ? thread / kAnyTile : thread % units;
    lines_apart_ = across ? 0 : kAnyThreads / units;
    units_apart_ = across ? kAnyThreads / kAnyTile : 0;
    const int64_t of_lines = (AlongRows() ? view.k_stride : view.row_stride) * size_;
    const int64_t of_units = (AlongRows() ? view.row_stride : view.k_stride) * size_ * kElements;
    from_ = view.data + (row0 * view.row_stride + k0 * view.k_stride) * size_ + line_ * of_lines +
            unit_ * of_units;
    apart_ = lines_apart_ * of_lines + units_apart_ * of_units;
    step_ = kStageK * view.k_stride * size_;
    rows_ = Within(view.rows - row0);
  }

  // The next stage, of which `ks` k's are left.
  __device__ __forceinline__ void Fetch(int64_t ks) {
    const int k_left = Within(ks);
    const int lines = AlongRows() ? k_left : rows_, elements = AlongRows() ? rows_ : k_left;
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      const int left = elements - (unit_ + i * units_apart_) * kElements;
      const bool inside = line_ + i * lines_apart_ < lines;
      bytes_[i] = inside ? max(0, min(left, kElements)) * size_ : 0;
      const char* const from = from_ + i * apart_;
      if (view_.walk == Walk::kStrided) {
        units_[i].low = Gathered<Math>(view_.type, from, view_.k_stride * size_, bytes_[i]);
      } else {
        units_[i].Load(from, bytes_[i]);
      }
    }
    from_ += step_;
  }

  // What was fetched, into shared memory.
  __device__ __forceinline__ void Store(unsigned char* tile) const {
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      // The shift is the same in each stage: they are whole units apart.
      const uint4 v = view_.walk == Walk::kStrided
                          ? units_[i].low
                          : units_[i].Bytes(UnitsAround::ShiftOf(from_ + i * apart_), bytes_[i]);
      Math::Put(tile, AlongRows(), line_ + i * lines_apart_, unit_ + i * units_apart_,
                Math::Converted(view_.type, v));
    }
  }

  __device__ __forceinline__ bool AlongRows() const {
    return Math::kTransposes && view_.walk == Walk::kAlongRows;
  }

 private:
  static constexpr int kElements = Math::kChunkElements;
  static constexpr int kStageK = kChunks * kElements;

  // Enough to tell a tile's rows and a stage's k's from those outside.
  static __device__ __forceinline__ int Within(int64_t left) {
    return static_cast<int>(min(left, static_cast<int64_t>(2 * kStageBytes)));
  }

  const OperandView& view_;
  int size_;
  int rows_;  // those that are left
  int line_, unit_, lines_apart_, units_apart_;
  const char* from_;
  int64_t apart_, step_;
  int bytes_[kChunksPerThread];
  UnitsAround units_[kChunksPerThread];
};

}  // namespace gemmd::kernels::cuda
