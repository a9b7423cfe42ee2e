#include "kernels/cpu/matmul/k_grouped.h"

#include <vector>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/matmul/grouped.h"
#include "kernels/k_grouped.h"

namespace gemmd::kernels::cpu {

void RunOp(const KGroupedMatmulOp& op, const RunContext& context) {
  // A copy: what another program writes there meanwhile must not pass the checks and then change.
  const auto* numbers = reinterpret_cast<const int32_t*>(Address(op.groups, context.bindings));
  const std::vector<int32_t> index(numbers, numbers + op.groups.shape[0]);
  DataFault fault;
  const std::vector<GroupColumns> groups = ReadColumns(op, index.data(), fault);
  if (context.faults != nullptr) context.faults->Report(fault);
  for (size_t g = 0; g < groups.size() && !context.Stopped(); ++g) {
    MultiplyAny(MatmulOf(op, static_cast<int64_t>(g), groups[g]), context);
  }
}

double KGroupedSeconds(const KGroupedMatmulOp& op, const Machine& machine) {
  MatmulProblem problem;
  problem.batch = op.d.shape[0];
  problem.m = op.d.shape[1];
  problem.n = op.d.shape[2];
  problem.k = (op.a.values.shape[1] + problem.batch - 1) / problem.batch;
  problem.a.dtype = op.a.values.dtype;
  problem.b.dtype = op.b.values.dtype;
  problem.d.dtype = op.d.dtype;
  return op.a.values.dtype == DType::kI8 ? Int8Seconds(problem, machine)
                                         : PanelSeconds(problem, machine);
}

}  // namespace gemmd::kernels::cpu
