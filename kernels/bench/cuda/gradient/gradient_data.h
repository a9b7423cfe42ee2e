// Data of gradient_bench, made and compared on the device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::bench {

// `count` codes of FP8, none of them NaN or infinite, of exponents around 1; E5M2 or E4M3.
cudaError_t FillCodes(uint8_t* codes, int64_t count, bool e5m2, uint32_t seed);
// The same of BF16, or of FP16.
cudaError_t Fill16Bits(uint16_t* codes, int64_t count, bool f16, uint32_t seed);
// Floats of 0.5 to 1.5, times `factor`.
cudaError_t FillFloats(float* values, int64_t count, float factor, uint32_t seed);
// *different += the words in which both differ.
cudaError_t CountDifferent(const uint32_t* a, const uint32_t* b, int64_t words,
                           unsigned long long* different);

}  // namespace gemmd::kernels::bench
