// What surrounds the grouped matmuls of a mixture of experts: rows to their experts, and back.

#ifndef GEMMD_KERNELS_CPU_OPS_ROUTE_H_
#define GEMMD_KERNELS_CPU_OPS_ROUTE_H_

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

void RunRoute(const RouteOp& op, const RunContext& context);
void RunCombine(const CombineOp& op, const RunContext& context);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_OPS_ROUTE_H_
