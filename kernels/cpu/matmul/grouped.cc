#include "kernels/cpu/matmul/grouped.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/gated.h"
#include "kernels/grouping.h"

namespace gemmd::kernels::cpu {
namespace {

// Floats of a product that waits for its gate.
constexpr int64_t kGateFloats = 1 << 20;

// Item `item` of a tensor whose first dimension counts items.
TensorRef Item(TensorRef tensor, int64_t item) {
  tensor.offset_bytes += item * tensor.strides[0] * SizeBytes(tensor.dtype);
  for (int i = 1; i < tensor.shape.rank; ++i) {
    tensor.shape[i - 1] = tensor.shape[i];
    tensor.strides[i - 1] = tensor.strides[i];
  }
  --tensor.shape.rank;
  --tensor.strides.rank;
  return tensor;
}

// Rows of a matrix, or of the items of a batch of them.
TensorRef Rows(const TensorRef& tensor, bool batched, const GroupRows& group) {
  TensorRef rows = batched ? Item(tensor, group.item) : tensor;
  rows.offset_bytes += group.first * rows.strides[0] * SizeBytes(rows.dtype);
  rows.shape[0] = group.rows;
  return rows;
}

// Scales of one for all rows do not go by row.
TensorRef ScalesOfRows(const Operand& a, bool batched, const GroupRows& group) {
  if (a.granularity != ScaleGranularity::kPerTensor) return Rows(*a.scales, batched, group);
  return a.scales->shape.rank == 1 ? *a.scales : Item(*a.scales, group.item);
}

Operand GroupOfB(const Operand& b, int64_t group) {
  Operand one = b;
  one.values = Item(b.values, group);
  if (b.scales && b.scales->shape.rank > 1) one.scales = Item(*b.scales, group);
  return one;
}

MatmulOp MatmulOf(const GroupedMatmulOp& op, int64_t group, const GroupRows& rows) {
  const bool batched = op.layout == GroupLayout::kCounts;
  MatmulOp matmul;
  matmul.a = op.a;
  matmul.a.values = Rows(op.a.values, batched, rows);
  if (op.a.scales) matmul.a.scales = ScalesOfRows(op.a, batched, rows);
  matmul.b = GroupOfB(op.b, group);
  matmul.d = Rows(op.d, batched, rows);
  if (op.bias) matmul.bias = Item(*op.bias, group);
  matmul.alpha = op.alpha;
  matmul.activation = op.activation;
  return matmul;
}

const MatmulKernel& KernelFor(const MatmulProblem& problem) {
  for (const MatmulKernel& kernel : MatmulKernels()) {
    const bool takes_strides = kernel.run == RunDot || kernel.run == RunInt8;
    if (takes_strides && kernel.why_not(problem).empty()) return kernel;
  }
  const absl::Span<const MatmulKernel> all = MatmulKernels();
  return *std::find_if(all.begin(), all.end(),
                       [](const MatmulKernel& kernel) { return kernel.run == RunPanel; });
}

void Multiply(const MatmulOp& op, const RunContext& context) {
  const MatmulProblem problem = ProblemOf(op);
  if (problem.m == 0 || problem.n == 0) return;
  KernelFor(problem).run({op, problem, context});
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
    const bool batched = op.layout == GroupLayout::kCounts;
    MatmulOp matmul = MatmulOf(op, group, rows);
    TensorRef& d = matmul.d;
    const TensorRef result = d;
    d = {.slot = static_cast<int>(bindings.slots.size()) - 1,
         .dtype = DType::kF32,
         .shape = MakeDims({rows.rows, n})};
    d.strides = RowMajorStrides(d.shape);
    Multiply(matmul, with_product);
    GatedOp gated{.src = d, .dst = result};
    if (op.d_scales) gated.scales = Rows(*op.d_scales, batched, rows);
    gated.activation = op.gate->activation;
    gated.period = op.gate->period;
    gated.alpha = op.gate->alpha;
    gated.limit = op.gate->limit;
    gated.up_offset = op.gate->up_offset;
    RunGated(gated, with_product);
  }
}

}  // namespace

void RunGrouped(const GroupedMatmulOp& op, const RunContext& context) {
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
      Multiply(MatmulOf(op, static_cast<int64_t>(g), groups[g]), context);
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
