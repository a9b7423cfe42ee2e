// Quantize: FP32, BF16 or F16 to E4M3 or I8 with scales from each block's largest magnitude. The
// formula and its edge cases are QuantizeOp's contract (op.h).

#ifndef GEMMD_KERNELS_CPU_OPS_QUANTIZE_H_
#define GEMMD_KERNELS_CPU_OPS_QUANTIZE_H_

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// One block by itself: its scale. codes[i] = round(values[i] / scale), SizeBytes(dtype) each.
float QuantizeRun(DType dtype, const float* values, int64_t n, std::byte* codes);

void RunQuantize(const QuantizeOp& op, const RunContext& context);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_OPS_QUANTIZE_H_
