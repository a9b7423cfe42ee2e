#include "kernels/cpu/matmul/grouped.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/run_op.h"
#include "kernels/grouping.h"

namespace gemmd::kernels::cpu {
namespace {

// Floats of a product that waits for its gate.
constexpr int64_t kGateFloats = 1 << 20;

const MatmulKernel& KernelFor(const MatmulProblem& problem) {
  for (const MatmulKernel& kernel : MatmulKernels()) {
    const bool takes_strides = kernel.run == RunDot || kernel.run == RunInt8;
    if (takes_strides && kernel.why_not(problem).empty()) return kernel;
  }
  const absl::Span<const MatmulKernel> all = MatmulKernels();
  return *std::find_if(all.begin(), all.end(),
                       [](const MatmulKernel& kernel) { return kernel.run == RunPanel; });
}

// The product of some rows at a time as FP32 in a slot of its own, then the gate.
void MultiplyGated(const GroupedMatmulOp& op, int64_t group, GroupRows rows,
                   const RunContext& context) {
  const int64_t n = op.b.values.shape[1];
  const int64_t end = rows.first + rows.rows;
  const int64_t most = std::clamp<int64_t>(kGateFloats / std::max<int64_t>(n, 1), 1, rows.rows);
  std::vector<float> product(static_cast<size_t>(most * n));
  Bindings bindings;
  bindings.slots = context.bindings.slots;
  bindings.slots.push_back(reinterpret_cast<std::byte*>(product.data()));
  const RunContext with_product{bindings, context.workers, context.scratch, context.watch,
                                context.faults};
  for (; rows.first < end && !context.Stopped(); rows.first += most) {
    rows.rows = std::min(most, end - rows.first);
    MatmulOp matmul = MatmulOf(op, group, rows);
    TensorRef& d = matmul.d;
    const TensorRef result = d;
    d = {.slot = static_cast<int>(bindings.slots.size()) - 1,
         .dtype = DType::kF32,
         .shape = MakeDims({rows.rows, n})};
    d.strides = RowMajorStrides(d.shape);
    MultiplyAny(matmul, with_product);
    std::optional<TensorRef> scales;
    if (op.d_scales) scales = RowsOf(*op.d_scales, op, rows);
    const GatedOp gated = GatedOf(*op.gate, d, result, scales);
    RunOp(gated, with_product);
  }
}

}  // namespace

void MultiplyAny(const MatmulOp& op, const RunContext& context) {
  const MatmulProblem problem = ProblemOf(op);
  if (problem.m == 0 || problem.n == 0) return;
  KernelFor(problem).run({op, problem, context});
}

void RunOp(const GroupedMatmulOp& op, const RunContext& context) {
  // A copy: what another program writes there meanwhile must not pass the checks and then change.
  const auto* numbers = reinterpret_cast<const int32_t*>(Address(op.groups, context.bindings));
  const std::vector<int32_t> index(numbers, numbers + op.groups.shape[0]);
  DataFault fault;
  const std::vector<GroupRows> groups = ReadGroups(op, index.data(), fault);
  if (context.faults != nullptr) context.faults->Report(fault);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].rows == 0) continue;
    if (context.Stopped()) return;
    if (op.gate) {
      MultiplyGated(op, static_cast<int64_t>(g), groups[g], context);
    } else {
      MultiplyAny(MatmulOf(op, static_cast<int64_t>(g), groups[g]), context);
    }
  }
}

double GroupedSeconds(const GroupedMatmulOp& op, const Machine& machine) {
  const Dims& b = op.b.values.shape;
  const int64_t groups = b[0];
  MatmulProblem problem;
  problem.batch = groups;
  problem.m = (ExpectedRows(op) + groups - 1) / groups;
  problem.n = b[1];
  problem.k = b[2];
  problem.a.dtype = problem.b.dtype = op.a.values.dtype;
  problem.d.dtype = op.d.dtype;
  return op.a.values.dtype == DType::kI8 ? Int8Seconds(problem, machine)
                                         : PanelSeconds(problem, machine);
}

}  // namespace gemmd::kernels::cpu
