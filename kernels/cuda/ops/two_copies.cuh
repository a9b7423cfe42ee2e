// One or two copies of operands as one kernel: which of its blocks are whose.

#pragma once

#include <algorithm>

#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/operand_copy.h"

namespace gemmd::kernels::cuda {

inline constexpr int kMostCopies = 2;  // a's and b's

// Blocks along x are along k, those of the first copy in front; along y rows, along z the batch.
struct Copies {
  OperandCopyArgs of[kMostCopies];
  unsigned lines_of_first;  // blocks along x that are the first one's
};

// Of elements of `element_bytes`, by blocks of so many rows and k's.
inline cudaError_t LaunchCopies(void (*kernel)(Copies), const OperandCopyArgs* copies, int count,
                                int element_bytes, int tile_rows, int tile_k, int threads,
                                bool programmatic, cudaStream_t stream) {
  if (count < 0 || count > kMostCopies) return cudaErrorInvalidValue;
  Copies all = {};
  int64_t lines = 0, rows = 0, batch = 0;
  for (int i = 0; i < count; ++i) {
    const OperandCopyArgs& copy = copies[i];
    if (copy.batch < 0 || copy.rows < 0 || copy.k < 0 || copy.element_bytes != element_bytes) {
      return cudaErrorInvalidValue;
    }
    all.of[i] = copy;
    const bool empty = copy.batch == 0 || copy.rows == 0;
    lines += empty ? 0 : CeilDiv(copy.k, tile_k);
    rows = std::max(rows, CeilDiv(copy.rows, tile_rows));
    batch = std::max(batch, copy.batch);
    if (lines > kMaxGridX) return cudaErrorInvalidValue;
    if (i == 0) all.lines_of_first = static_cast<unsigned>(lines);
  }
  if (lines == 0) return cudaSuccess;
  return LaunchKernel(kernel, GridOf(lines, rows, batch), threads, programmatic, stream, all);
}

}  // namespace gemmd::kernels::cuda
