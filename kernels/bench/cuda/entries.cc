#include "kernels/bench/cuda/entries.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "kernels/cuda/matmul/tma_family.h"
#include "kernels/cuda/sm90/launch/scratch_front.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::GemmVariant;

absl::StatusOr<Entry> EntryOf(std::string name, Binding bind, const Workload& workload) {
  absl::StatusOr<Call> call = bind(workload);
  if (!call.ok()) return call.status();
  Entry entry;
  entry.name = std::move(name);
  entry.bind = std::move(bind);
  entry.call = *std::move(call);
  return entry;
}

// Scratch memory for calls that come one after the other, and keep it. It grows with what is asked
// for; the first to ask for more than there is makes it anew.
absl::StatusOr<std::shared_ptr<const DeviceBuffer>> ScratchOf(int64_t bytes) {
  static auto* const last = new std::shared_ptr<const DeviceBuffer>();
  const int64_t size = bytes + cuda::kScratchFront;
  if (*last != nullptr && (*last)->size_bytes() >= size) return *last;
  auto buffer = std::make_shared<DeviceBuffer>();
  absl::Status status = buffer->Reserve(size);
  if (status.ok()) {
    status = cuda::ToStatus(cudaMemset(buffer->data(), 0, cuda::kScratchFront), "clearing scratch");
  }
  if (status.ok()) status = cuda::ToStatus(cudaDeviceSynchronize(), "clearing scratch");
  if (!status.ok()) return status;
  *last = std::move(buffer);
  return *last;
}

// `family` is kept by whoever binds.
absl::StatusOr<Entry> EntryOf(std::shared_ptr<const cuda::MatmulFamily> family, int member,
                              const Workload& workload) {
  std::string name = family->members()[member].name;
  Binding bind = [family = std::move(family), member](const Workload& w) {
    return BindMember(*family, member, w.args());
  };
  return EntryOf(std::move(name), std::move(bind), workload);
}

}  // namespace

absl::StatusOr<Call> BindMember(const cuda::MatmulFamily& family, int member,
                                const cuda::MatmulArgs& args) {
  if (const std::string why = family.WhyNot(member, args.problem); !why.empty()) {
    return absl::UnimplementedError(why);
  }
  const auto buffer = ScratchOf(family.ScratchBytes(member, args.problem));
  if (!buffer.ok()) return buffer.status();
  auto prepared = family.Prepare(member, args, (*buffer)->as<std::byte>() + cuda::kScratchFront);
  if (!prepared.ok()) {
    return absl::Status(prepared.status().code(), absl::StrCat(family.members()[member].name, ": ",
                                                               prepared.status().message()));
  }
  std::shared_ptr<const cuda::PreparedMatmul> matmul = *std::move(prepared);
  return Call([matmul, scratch = *buffer](cudaStream_t stream) {
    return matmul->Launch(/*overlap=*/false, stream);
  });
}

absl::Status CheckKernelName(const std::string& name) {
  if (name == cuda::kAnyGemmName || cuda::FindVariant(name).has_value()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no kernel is called ", name, "; see --list"));
}

absl::StatusOr<std::vector<Entry>> ListEntries(const Options& options, const Choosers& choosers,
                                               const cuda::DeviceTraits& traits,
                                               const Workload& workload, ShapeResult& result) {
  const MatmulProblem problem = workload.args().problem;
  const auto tma = std::make_shared<const cuda::TmaFamily>(traits, 0, cuda::PrepareTma);
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
    const auto any = std::make_shared<const cuda::PlainFamily>(
        std::vector<cuda::PlainKernel>{cuda::AnyGemmKernel(cuda::LaunchAnyGemm)});
    absl::StatusOr<Entry> entry = EntryOf(any, 0, workload);
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
    absl::StatusOr<Entry> entry = EntryOf(tma, IndexOf(variant), workload);
    // One that does not fit this device, or these addresses, is one candidate less, unless it is
    // the choice.
    const bool refused =
        absl::IsUnimplemented(entry.status()) || absl::IsInvalidArgument(entry.status());
    if (refused && !entries.empty()) continue;
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  result.kernel = entries[0].name;
  return entries;
}

}  // namespace gemmd::kernels::bench
