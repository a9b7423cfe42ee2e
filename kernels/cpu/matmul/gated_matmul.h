// A matmul with a gate: rows of the product in FP32, and the gate over them while they are in
// cache.

#pragma once

#include "kernels/cpu/matmul/matmul.h"

namespace gemmd::kernels::cpu {

// `kernel` multiplies; it serves the op's product into FP32.
void RunGatedMatmul(const MatmulOp& op, const MatmulKernel& kernel, const RunContext& context);

}  // namespace gemmd::kernels::cpu
