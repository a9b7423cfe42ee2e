// KGroupedMatmul: one matmul for each group's columns, by the CPU's matmul kernels.

#pragma once

#include "kernels/cpu/matmul/model.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// Modelled, as if all columns were some group's, and alike in all groups.
double KGroupedSeconds(const KGroupedMatmulOp& op, const Machine& machine);

}  // namespace gemmd::kernels::cpu
