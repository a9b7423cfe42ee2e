#include "kernels/cpu/program.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/matmul/gated_matmul.h"
#include "kernels/cpu/matmul/move_model.h"
#include "kernels/cpu/ops/run_op.h"
#include "kernels/op_fields.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

size_t InlineBytes(const TensorRef& tensor) {
  return static_cast<size_t>(NumElements(tensor.shape).value_or(0) * SizeBytes(tensor.dtype));
}

struct RunOther {
  const RunContext& context;
  void operator()(const MatmulOp&) const {}  // RunStep's own
  template <class T>
  void operator()(const T& op) const {
    RunOp(op, context);
  }
};

// The kernel that an op insists on, or none.
std::string WantedKernel(const Op& op) {
  return std::visit(
      [](const auto& kind) -> std::string {
        if constexpr (requires { kind.kernel; }) return kind.kernel;
        return "";
      },
      op);
}

absl::StatusOr<KernelChoice> ChooseOther(const Op& op, const Pool& pool) {
  const std::string_view kernel = pool.others[op.index()];
  const std::string wanted = WantedKernel(op);
  if (!wanted.empty() && wanted != kernel) {
    return absl::NotFoundError(absl::StrCat("kernel ", wanted,
                                            " is none for a grouped matmul here; use ",
                                            Text(kernel), " or leave kernel empty"));
  }
  if (kernel.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the kernel for ", Text(Name(op)), " is disabled on this device"));
  }
  return KernelChoice{kernel, ChoiceReason::kOnly, OpMoveSeconds(pool.machine, op)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> CpuProgram::Compile(absl::Span<const Op> ops,
                                                                   const Pool& pool) {
  auto program = std::make_shared<CpuProgram>();
  program->tasks_.reserve(ops.size());
  program->steps_.reserve(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    Task& task = program->tasks_.emplace_back(Task{op, {}, nullptr});
    absl::StatusOr<KernelChoice> choice;
    if (const auto* matmul = std::get_if<MatmulOp>(&op)) {
      task.problem = ProblemOf(matmul->gate ? ProductOf(*matmul, DType::kF32, 0) : *matmul);
      absl::StatusOr<Selection> selection =
          Select(task.problem, matmul->kernel, pool.matmul, pool.machine);
      if (selection.ok()) task.kernel = selection->kernel;
      choice =
          selection.ok() ? absl::StatusOr<KernelChoice>(selection->choice) : selection.status();
    } else {
      choice = ChooseOther(op, pool);
    }
    if (!choice.ok()) {
      return absl::Status(choice.status().code(), absl::StrCat("op ", i, " (", Text(Name(op)),
                                                               "): ", choice.status().message()));
    }
    program->steps_.push_back({Name(op), MainTensor(op).dtype, *choice, Flops(op), Bytes(op)});
    program->estimated_seconds_ += choice->estimated_seconds;
    ForEachTensor(op, [&](const TensorRef& tensor, Access) {
      program->slots_needed_ = std::max<size_t>(program->slots_needed_, tensor.slot + 1);
    });
    if (const auto* write = std::get_if<WriteOp>(&op)) {
      program->inputs_needed_.push_back({write->input, InlineBytes(write->dst)});
    } else if (const auto* read = std::get_if<ReadOp>(&op)) {
      program->outputs_needed_.push_back({read->output, InlineBytes(read->src)});
    }
  }
  return program;
}

absl::Status CpuProgram::CheckBindings(const Bindings& bindings) const {
  if (bindings.slots.size() < slots_needed_) {
    return absl::InvalidArgumentError(absl::StrCat("the program names ", slots_needed_,
                                                   " slots but ", bindings.slots.size(),
                                                   " are bound; bind them all"));
  }
  const auto check = [](const auto& spans, absl::Span<const IoNeed> needs, const char* what) {
    for (const IoNeed& need : needs) {
      if (static_cast<size_t>(need.index) < spans.size() &&
          spans[need.index].size() == need.bytes) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(what, " ", need.index, " must be bound to ",
                                                     need.bytes, " bytes; rebind it"));
    }
    return absl::OkStatus();
  };
  absl::Status status = check(bindings.inputs, inputs_needed_, "input");
  return status.ok() ? check(bindings.outputs, outputs_needed_, "output") : status;
}

void CpuProgram::RunStep(size_t index, const RunContext& context) const {
  const Task& task = tasks_[index];
  const auto* matmul = std::get_if<MatmulOp>(&task.op);
  if (matmul == nullptr) return std::visit(RunOther{context}, task.op);
  const MatmulProblem& p = task.problem;
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  if (matmul->gate) return RunGatedMatmul(*matmul, *task.kernel, context);
  task.kernel->run({*matmul, p, context});
}

}  // namespace gemmd::kernels::cpu
