// GroupedMatmul: one matmul for each group, by the CPU's matmul kernels on the group's rows.

#pragma once

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// One matmul of whatever strides and k, by the kernel that is best for them.
void MultiplyAny(const MatmulOp& op, const RunContext& context);

// Modelled, of the rows that the op expects, alike in all groups.
double GroupedSeconds(const GroupedMatmulOp& op, const Machine& machine);

}  // namespace gemmd::kernels::cpu
