// The scale transpose: 1x128 scales as clients lay them out into the m-major form that the FP8 GEMM
// loads by TMA.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::cuda {

// Floats between the k blocks of m-major scales: TMA wants 16-byte strides.
constexpr int64_t MMajorLeadingDimension(int64_t rows) { return (rows + 3) / 4 * 4; }

// dst[batch, k_block, row] = src[batch, row, k_block]. Strides in floats; src and dst must not
// overlap. The padding of dst, rows to dst_ld, is not written.
struct ScaleLayoutArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t k_blocks = 0;
  const float* src = nullptr;  // [batch, rows, k_blocks], any strides
  int64_t src_batch = 0;
  int64_t src_row = 0;
  int64_t src_k = 1;
  float* dst = nullptr;  // [batch, k_blocks, rows], stride 1 along rows
  int64_t dst_batch = 0;
  int64_t dst_ld = 0;         // MMajorLeadingDimension(rows) or more
  bool programmatic = false;  // the launch may overlap the previous kernel's end
};

// Queues it on `stream` of the current device. Nothing to do is success.
cudaError_t LaunchScaleLayout(const ScaleLayoutArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
