#include "kernels/bench/cuda/entries.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::GemmVariant;

absl::StatusOr<Call> Bind(const GemmVariant& variant, const cuda::Fp8GemmArgs& args,
                          const cuda::DeviceTraits& traits) {
  // By address, where alignment is known exactly.
  if (const std::string why = cuda::WhyNot(variant, args); !why.empty()) {
    return absl::UnimplementedError(why);
  }
  absl::StatusOr<cuda::GemmLaunch> launch = cuda::PrepareLaunch(variant, args, traits);
  if (!launch.ok()) {
    return absl::Status(launch.status().code(),
                        absl::StrCat(Name(variant), ": ", launch.status().message()));
  }
  return Call([variant, launch = *launch](cudaStream_t stream) {
    return cuda::Launch(variant, launch, stream);
  });
}

Call BindFallback(const Workload& workload) {
  return [any = AnyArgsOf(workload.args(), workload.dtype())](cudaStream_t stream) {
    return cuda::ToStatus(cuda::LaunchAnyGemm(any, stream), cuda::kAnyGemmName);
  };
}

absl::StatusOr<Entry> EntryOf(std::string name, Binding bind, const Workload& workload) {
  absl::StatusOr<Call> call = bind(workload);
  if (!call.ok()) return call.status();
  Entry entry;
  entry.name = std::move(name);
  entry.bind = std::move(bind);
  entry.call = *std::move(call);
  return entry;
}

absl::StatusOr<Entry> EntryOf(const GemmVariant& variant, const cuda::DeviceTraits& traits,
                              const Workload& workload) {
  const auto bind = [variant, traits](const Workload& w) {
    return Bind(variant, w.args(), traits);
  };
  return EntryOf(Name(variant), bind, workload);
}

absl::StatusOr<Entry> FallbackEntry(const Workload& workload) {
  return EntryOf(
      cuda::kAnyGemmName, [](const Workload& w) { return BindFallback(w); }, workload);
}

}  // namespace

cuda::AnyGemmArgs AnyArgsOf(const cuda::Fp8GemmArgs& args, DType dtype) {
  const bool blocks = BlockScaled(args, dtype);
  cuda::AnyGemmArgs any;
  any.m = args.m;
  any.n = args.n;
  any.k = args.k;
  any.type = static_cast<cuda::ElementType>(dtype);
  any.a = {.data = args.a, .row_stride = args.lda, .scales = {.data = args.a_scales}};
  any.b = {.data = args.b, .row_stride = args.ldb, .scales = {.data = args.b_scales}};
  any.a.scales.row_stride = 1;
  any.a.scales.k_stride = blocks ? args.a_scales_ld : 0;
  any.b.scales.row_stride = args.b_scales_ld;
  any.b.scales.k_stride = blocks ? 1 : 0;
  any.b.scales.row_blocks = blocks;
  any.out = args.out == cuda::OutType::kF16 ? cuda::ElementType::kF16 : cuda::ElementType::kBF16;
  any.d = {.data = args.d, .row_stride = args.ldd};
  return any;
}

absl::Status CheckKernelName(const std::string& name) {
  if (name == cuda::kAnyGemmName || cuda::FindVariant(name).has_value()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no kernel is called ", name, "; see --list"));
}

absl::StatusOr<std::vector<Entry>> ListEntries(const Options& options, const Choosers& choosers,
                                               const cuda::DeviceTraits& traits,
                                               const Workload& workload, ShapeResult& result) {
  const MatmulProblem problem = ProblemOf(workload.args(), workload.dtype());
  std::vector<GemmVariant> variants;
  std::vector<Entry> entries;
  bool fallback = false;
  if (!options.kernel.empty()) {
    if (absl::Status status = CheckKernelName(options.kernel); !status.ok()) return status;
    const std::optional<GemmVariant> forced = cuda::FindVariant(options.kernel);
    if (forced.has_value()) variants.push_back(*forced);
    fallback = !forced.has_value();
    result.reason = std::string(Name(ChoiceReason::kForced));
  } else if (absl::StatusOr<cuda::GemmPick> pick = choosers.tested.Choose(problem); pick.ok()) {
    variants.push_back(pick->variant);
    result.reason = std::string(Name(pick->reason));
  } else if (absl::IsUnimplemented(pick.status())) {
    fallback = true;
    result.reason = std::string(Name(ChoiceReason::kFallback));
    result.message = std::string(pick.status().message());
  } else {
    return pick.status();
  }
  if (fallback) {
    absl::StatusOr<Entry> entry = FallbackEntry(workload);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  if (options.sweep || options.tune) {
    if (absl::StatusOr<cuda::GemmPick> pick = choosers.model.Choose(problem); pick.ok()) {
      result.model_kernel = Name(pick->variant);
    }
    int listed = 0;
    for (const cuda::RankedVariant& ranked : choosers.model.Rank(problem)) {
      if (!ranked.why_not.empty() || (options.top > 0 && listed++ >= options.top)) continue;
      if (variants.empty() || !(ranked.variant == variants[0])) variants.push_back(ranked.variant);
    }
  }
  for (const GemmVariant& variant : variants) {
    absl::StatusOr<Entry> entry = EntryOf(variant, traits, workload);
    // One that does not fit this device, or these addresses, is one candidate less, unless it is
    // the choice.
    if (absl::IsUnimplemented(entry.status()) && !entries.empty()) continue;
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  result.kernel = entries[0].name;
  return entries;
}

}  // namespace gemmd::kernels::bench
