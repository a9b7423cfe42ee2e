// A matmul with a gate: rows of the product in FP32, and the gate over them while they are in
// cache.

#ifndef GEMMD_KERNELS_CPU_MATMUL_GATED_MATMUL_H_
#define GEMMD_KERNELS_CPU_MATMUL_GATED_MATMUL_H_

#include "kernels/cpu/matmul/matmul.h"

namespace gemmd::kernels::cpu {

// `kernel` multiplies; it serves the op's product into FP32.
void RunGatedMatmul(const MatmulOp& op, const MatmulKernel& kernel, const RunContext& context);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_MATMUL_GATED_MATMUL_H_
