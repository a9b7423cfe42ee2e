// Which kernel serves an op, and what it needs of scratch memory.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

// What was measured while the daemon serves may choose another kernel tomorrow.
GemmPool::By ByOf(const MatmulOp& op) {
  return op.deterministic ? GemmPool::By::kShipped : GemmPool::By::kTuned;
}

}  // namespace

absl::StatusOr<KernelChoice> CudaProgram::ChooseOther(const Op& op, const KernelSet& kernels) {
  const std::string_view kernel = kernels.others[op.index()];
  if (kernel.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the kernel for ", Text(Name(op)), " is disabled on this device"));
  }
  return KernelChoice{kernel, ChoiceReason::kOnly, MoveSeconds(op, kernels.memory_bytes_per_s)};
}

absl::StatusOr<KernelChoice> CudaProgram::ChooseMatmul(const MatmulOp& op, const KernelSet& kernels,
                                                       Task& task) {
  const MatmulProblem problem = ProblemOf(op);
  const absl::StatusOr<PoolPick> pick = kernels.matmul.Choose(problem, op.kernel, ByOf(op));
  if (!pick.ok()) return pick.status();
  task.member = pick->member;
  task.launch_index = matmuls_++;
  scratch_bytes_ = std::max(scratch_bytes_, kernels.matmul.ScratchBytes(pick->member, problem));
  return pick->choice;
}

absl::StatusOr<KernelChoice> CudaProgram::ChooseGrouped(const GroupedMatmulOp& op,
                                                        const KernelSet& kernels, Task& task) {
  const std::string_view any = kernels.others[Op(op).index()];
  const std::string_view tma = kernels.TmaGrouped(op.a);
  std::string why = tma.empty() ? "the TMA kernels are disabled on this device" : WhyNotTma(op);
  // What applies the gate, too, has to serve the product.
  std::string why_apart = !why.empty() ? why : WhyNotFp8(op);
  if (why_apart.empty()) {
    why_apart = !op.gate                   ? "it has no gate"
                : kernels.fp8_gate.empty() ? "the kernels are disabled on this device"
                                           : WhyNotFused(op);
  }
  const bool forced = !op.kernel.empty();
  if (forced && op.kernel != any && op.kernel != tma && op.kernel != kernels.fp8_gate) {
    return absl::NotFoundError(
        absl::StrCat("kernel ", op.kernel, " is none for a grouped matmul here; use ", Text(any),
                     ", ", Text(tma), " or, with a gate, ", Text(kernels.fp8_gate)));
  }
  for (const auto& [kernel, lacks] : {std::pair(tma, &why), {kernels.fp8_gate, &why_apart}}) {
    if (!forced || op.kernel != kernel || lacks->empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat("kernel ", op.kernel, " cannot serve it: ", *lacks, "; leave kernel empty"));
  }
  const auto seconds = [&](bool with_gate) {
    return GroupedSeconds(op, true, kernels.memory_bytes_per_s, with_gate);
  };
  const bool fused = why_apart.empty() &&
                     (forced ? op.kernel == kernels.fp8_gate : seconds(true) <= seconds(false));
  const bool by_tma = fused || (why.empty() && (!forced || op.kernel == tma));
  if (!by_tma && any.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel for any grouped matmul is disabled on this device; TMA kernels: ", why));
  }
  task.grouped = LayoutOf(op, by_tma, fused);
  task.launch_index = grouped_++;
  if (task.grouped->scratch_bytes > kMaxScratchBytes) {
    return absl::UnimplementedError(absl::StrCat("it takes ", task.grouped->scratch_bytes,
                                                 " bytes of scratch memory, limit ",
                                                 kMaxScratchBytes, "; split it"));
  }
  scratch_bytes_ = std::max(scratch_bytes_, task.grouped->scratch_bytes);
  const ChoiceReason reason = forced   ? ChoiceReason::kForced
                              : by_tma ? ChoiceReason::kModel
                                       : ChoiceReason::kFallback;
  return KernelChoice{fused    ? kernels.fp8_gate
                      : by_tma ? tma
                               : any,
                      reason, GroupedSeconds(op, by_tma, kernels.memory_bytes_per_s, fused)};
}

absl::StatusOr<KernelChoice> CudaProgram::ChooseKGrouped(const KGroupedMatmulOp& op,
                                                         const KernelSet& kernels, Task& task) {
  const std::string_view any = kernels.others[Op(op).index()];
  const std::string_view tma = kernels.KGrouped(op.a.values.dtype);
  const std::string_view named = GradientName(op.a.values.dtype);
  const std::string why =
      tma.empty() ? "the TMA kernels are disabled on this device" : WhyNotGradient(op);
  const bool forced = !op.kernel.empty();
  if (forced && op.kernel != any && op.kernel != named) {
    return absl::NotFoundError(absl::StrCat("kernel ", op.kernel,
                                            " is none for a k-grouped matmul here; use ", Text(any),
                                            " or ", Text(named)));
  }
  if (forced && op.kernel == named && !why.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("kernel ", op.kernel, " cannot serve it: ", why, "; leave kernel empty"));
  }
  const bool fast = why.empty() && (!forced || op.kernel == tma);
  if (!fast && any.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel for any k-grouped matmul is disabled on this device; TMA kernels: ", why));
  }
  task.k_grouped = LayoutOf(op, fast);
  task.launch_index = k_grouped_++;
  if (task.k_grouped->scratch_bytes > kMaxScratchBytes) {
    return absl::UnimplementedError(absl::StrCat("it takes ", task.k_grouped->scratch_bytes,
                                                 " bytes of scratch memory, limit ",
                                                 kMaxScratchBytes, "; lay scales out by columns"));
  }
  scratch_bytes_ = std::max(scratch_bytes_, task.k_grouped->scratch_bytes);
  const ChoiceReason reason = forced ? ChoiceReason::kForced
                              : fast ? ChoiceReason::kModel
                                     : ChoiceReason::kFallback;
  return KernelChoice{fast ? tma : any, reason,
                      KGroupedSeconds(op, fast, kernels.memory_bytes_per_s)};
}

}  // namespace gemmd::kernels::cuda
