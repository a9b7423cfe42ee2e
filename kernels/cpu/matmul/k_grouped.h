// KGroupedMatmul: one matmul for each group's columns, by the CPU's matmul kernels.

#ifndef GEMMD_KERNELS_CPU_MATMUL_K_GROUPED_H_
#define GEMMD_KERNELS_CPU_MATMUL_K_GROUPED_H_

#include "kernels/cpu/matmul/model.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// Modelled, as if all columns were some group's, and alike in all groups.
double KGroupedSeconds(const KGroupedMatmulOp& op, const Machine& machine);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_MATMUL_K_GROUPED_H_
