#include "kernels/cuda/grouped/k_grouped_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/k_grouped.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kPartAlignment = 256;

GradientProblem ProblemOf(const KGroupedMatmulOp& op, SlotAddresses slots) {
  // Of group 0 with all columns; d and c lead from group to group.
  GradientProblem problem{.args = ArgsOf(MatmulOf(op, 0, {0, op.a.values.shape[1]}), slots),
                          .a = op.a.granularity,
                          .b = op.b.granularity,
                          .grouped = true};
  problem.args.batch = op.d.shape[0];
  problem.args.d.batch_stride = op.d.strides[0];
  if (op.c) problem.args.c.batch_stride = op.c->strides[0];
  return problem;
}

// In place of slots that are not bound: those start at multiples of 256.
std::vector<std::byte*> Somewhere(const Op& op) {
  int slots = 0;
  ForEachTensor(op,
                [&](const TensorRef& tensor, Access) { slots = std::max(slots, tensor.slot + 1); });
  return std::vector<std::byte*>(slots, reinterpret_cast<std::byte*>(uintptr_t{kPartAlignment}));
}
GradientProblem Unbound(const KGroupedMatmulOp& op) { return ProblemOf(op, Somewhere(Op(op))); }

}  // namespace

std::string WhyNotGradient(const KGroupedMatmulOp& op) { return WhyNotGradient(Unbound(op)); }

KGroupedLayout LayoutOf(const KGroupedMatmulOp& op, bool fast) {
  KGroupedLayout layout;
  layout.fast = fast;
  const int64_t numbers = 2 * op.d.shape[0] * static_cast<int64_t>(sizeof(int32_t));
  layout.copies_offset = (numbers + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  layout.scratch_bytes = layout.copies_offset;
  if (!fast) return layout;
  const GradientProblem problem = Unbound(op);
  layout.config = GradientConfig(problem);
  layout.scratch_bytes += CopiesOf(problem).scratch_bytes;
  return layout;
}

double KGroupedSeconds(const KGroupedMatmulOp& op, bool fast, double memory_bytes_per_s) {
  const GradientProblem problem = Unbound(op);
  const double columns = static_cast<double>(problem.args.k);
  if (fast) return GradientSeconds(problem, columns, memory_bytes_per_s);
  constexpr double kAnyFlops = 6e13, kLaunchesSeconds = 8e-6;  // sm90_any_gemm's, as measured
  return kLaunchesSeconds + 2 * columns * static_cast<double>(problem.args.m) *
                                static_cast<double>(problem.args.n) / kAnyFlops;
}

absl::StatusOr<KGroupedLaunches> PrepareKGrouped(const KGroupedMatmulOp& op,
                                                 const KGroupedLayout& layout, SlotAddresses slots,
                                                 std::byte* scratch, const DeviceTraits& device) {
  KGroupedLaunches launches;
  DirectoryArgs& directory = launches.directory;
  directory.index =
      reinterpret_cast<const int32_t*>(slots[op.groups.slot] + op.groups.offset_bytes);
  directory.layout = static_cast<GroupLayoutType>(op.layout);
  directory.groups = static_cast<int32_t>(op.d.shape[0]);
  directory.rows = static_cast<int32_t>(op.a.values.shape[1]);
  directory.alignment = static_cast<int32_t>(op.alignment);
  directory.step = static_cast<int32_t>(ColumnStep(op));
  directory.starts = reinterpret_cast<int32_t*>(scratch);
  directory.sizes = directory.starts + directory.groups;
  const GradientProblem problem = ProblemOf(op, slots);
  if (!layout.fast) {
    launches.any = AnyKGroupedArgs{problem.args, directory.starts, directory.sizes};
    return launches;
  }
  // Compile judged offsets; that slots start at multiples of 256 is the caller's word.
  if (std::string why = WhyNotGradient(problem); !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  auto gradient = PrepareGradient(problem, layout.config, scratch + layout.copies_offset, device);
  if (!gradient.ok()) return gradient.status();
  gradient->launch.starts = directory.starts;
  gradient->launch.sizes = directory.sizes;
  launches.gradient = *std::move(gradient);
  return launches;
}

absl::Status QueueKGrouped(const KGroupedLaunches& launches, DataFault* fault, bool overlap,
                           cudaStream_t stream) {
  DirectoryArgs directory = launches.directory;
  directory.fault = fault;
  directory.programmatic = overlap;
  cudaError_t code = LaunchDirectory(directory, stream);
  if (code == cudaSuccess && launches.any) code = LaunchAnyKGrouped(*launches.any, stream);
  if (code == cudaSuccess && launches.gradient) {
    code = LaunchGradient(*launches.gradient, true, stream);
  }
  return ToStatus(code, "launching a k-grouped matmul");
}

std::vector<Candidate> RankKGrouped(const KGroupedMatmulOp& op, const KernelInfo& gradient,
                                    const KernelInfo& any, double memory_bytes_per_s) {
  std::vector<Candidate> ranked;
  for (const bool fast : {true, false}) {
    const KernelInfo& kernel = fast ? gradient : any;
    Candidate candidate{.kernel = kernel.name, .why_not = kernel.why_off};
    if (candidate.why_not.empty() && fast) candidate.why_not = WhyNotGradient(op);
    candidate.feasible = candidate.why_not.empty();
    if (candidate.feasible) {
      candidate.modelled_seconds = KGroupedSeconds(op, fast, memory_bytes_per_s);
    }
    ranked.push_back(std::move(candidate));
  }
  if (!ranked[0].feasible) std::swap(ranked[0], ranked[1]);
  ranked[0].chosen = ranked[0].feasible;
  if (ranked[0].feasible && ranked[1].feasible) {
    ranked[1].why_not = absl::StrCat(
        (ranked[1].modelled_seconds - ranked[0].modelled_seconds) * 1e6, " us slower by the model");
  }
  return ranked;
}

}  // namespace gemmd::kernels::cuda
