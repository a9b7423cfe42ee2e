// Device kernels that make operands: random normal matrices, quantised on the device. A value is a
// function of (seed, row, column) alone, so the same matrix can be written in any format.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::bench {

enum class BlockCode { kE4M3, kI8 };

// values: [rows, k] E4M3 or INT8, dense. scales: amax/448 or amax/127 of each 1x128 block, m-major:
// block b of row r at scales[b * scales_ld + r].
cudaError_t QuantizeRandom1x128(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                                float* scales, int64_t scales_ld, cudaStream_t stream,
                                BlockCode code = BlockCode::kE4M3);

// values: [rows, k], dense. scales: likewise of each 128x128 block, at
// scales[(r / 128) * scales_ld + b].
cudaError_t QuantizeRandom128x128(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                                  float* scales, int64_t scales_ld, cudaStream_t stream,
                                  BlockCode code = BlockCode::kE4M3);

// values: [rows, k], dense. scales: [rows], likewise of each row.
cudaError_t QuantizeRandomRows(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                               float* scales, cudaStream_t stream, BlockCode code);

// values: [rows, k] BF16, dense: the same matrix, rounded to nearest even.
cudaError_t RandomBf16(uint64_t seed, int64_t rows, int64_t k, uint16_t* values,
                       cudaStream_t stream);
// The same in FP16.
cudaError_t RandomF16(uint64_t seed, int64_t rows, int64_t k, uint16_t* values,
                      cudaStream_t stream);

}  // namespace gemmd::kernels::bench
