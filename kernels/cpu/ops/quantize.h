// One block of what Quantize does to many: FP32 to E4M3, E5M2 or I8 with a scale from the largest
// magnitude. The formula and its edge cases are QuantizeOp's contract (op.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace gemmd::kernels::cpu {

// The scale. codes[i] = round(values[i] / scale), SizeBytes(dtype) each.
float QuantizeRun(DType dtype, const float* values, int64_t n, std::byte* codes);

}  // namespace gemmd::kernels::cpu
