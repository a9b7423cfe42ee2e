// Gated: activation(gate) * up over the columns of one matrix, rounded or quantised in the same
// pass. The formula is GatedOp's (op.h).

#ifndef GEMMD_KERNELS_CPU_OPS_GATED_H_
#define GEMMD_KERNELS_CPU_OPS_GATED_H_

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

void RunGated(const GatedOp& op, const RunContext& context);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_OPS_GATED_H_
