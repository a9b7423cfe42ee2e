#include "kernels/cpu/cpu_backend.h"

#include <cblas.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/device_info.h"
#include "kernels/cpu/matmul/grouped.h"
#include "kernels/cpu/matmul/k_grouped.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/stream.h"
#include "kernels/other_kernels.h"

namespace gemmd::kernels {
namespace cpu {
namespace {

std::vector<KernelInfo> AllKernels(absl::Span<const std::string> disabled = {}) {
  std::vector<KernelInfo> kernels;
  for (const MatmulKernel& kernel : MatmulKernels()) {
    kernels.push_back(
        {std::string(kernel.name), std::string(kernel.family), std::string(kernel.description)});
  }
  for (KernelInfo& kernel : OtherKernels("cpu")) kernels.push_back(std::move(kernel));
  for (KernelInfo& kernel : kernels) {
    const bool off = std::any_of(disabled.begin(), disabled.end(), [&](const std::string& name) {
      return name == kernel.name || name == kernel.family;
    });
    if (off) kernel.why_off = "it is disabled on this device: the config disables it";
  }
  return kernels;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuBackendOptions& options, int threads)
      : info_(DescribeCpu(options.name, threads, options.memory_bytes)),
        kernels_(AllKernels(options.disabled_kernels)),
        budget_(info_.name, info_.memory_bytes),
        workers_(threads) {
    pool_.machine = MachineFor(threads);
    const size_t matmuls = MatmulKernels().size();
    for (size_t i = 0; i < matmuls; ++i) {
      pool_.matmul.push_back({&MatmulKernels()[i], kernels_[i].name, kernels_[i].why_off.empty()});
    }
    pool_.others.emplace_back();  // matmul's place
    for (size_t i = matmuls; i < kernels_.size(); ++i) {
      pool_.others.push_back(kernels_[i].why_off.empty() ? kernels_[i].name : std::string_view());
    }
  }

  const DeviceInfo& info() const override { return info_; }
  absl::Span<const KernelInfo> kernels() const override { return kernels_; }
  absl::Status health() const override { return absl::OkStatus(); }
  absl::Status CanReach(const Backend& home) const override {
    if (home.info().gpu_ordinal < 0) return absl::OkStatus();  // the host's memory, as this one's
    return absl::UnimplementedError(
        absl::StrCat(info_.name, " cannot reach memory of ", home.info().name,
                     ", a GPU; download the data and upload it to ", info_.name));
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t size_bytes, MemoryKind kind) override {
    return AllocateMemory(budget_, size_bytes, kind);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportShared(int fd, int64_t size_bytes) override {
    return ImportMemory(budget_, fd, size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportDevice(const DeviceHandle&) override {
    return absl::UnimplementedError(absl::StrCat(
        info_.name, " is a CPU: it cannot map a GPU's memory; import a memfd, or copy ",
        "the data to the host"));
  }
  std::unique_ptr<HostMemory> AllocateOutput(int64_t size_bytes) override {
    return HeapMemory::Of(size_bytes);
  }
  absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops) override {
    return CpuProgram::Compile(ops, pool_);
  }
  std::vector<Candidate> Explain(const MatmulProblem& problem) const override {
    if (problem.gate_period == 0) return Rank(problem, pool_.matmul, pool_.machine);
    MatmulProblem product = ProductOf(problem);  // in FP32, with the gate behind it
    product.d.dtype = DType::kF32;
    return Rank(product, pool_.matmul, pool_.machine);
  }
  std::vector<Candidate> ExplainGrouped(const GroupedMatmulOp& op) const override {
    return {Only(op, GroupedSeconds(op, pool_.machine))};
  }
  std::vector<Candidate> ExplainKGrouped(const KGroupedMatmulOp& op) const override {
    return {Only(op, KGroupedSeconds(op, pool_.machine))};
  }
  std::unique_ptr<Stream> CreateStream(const StreamOptions& options) override {
    return std::make_unique<CpuStream>(workers_, options);
  }

 private:
  // Of an op that one kernel serves.
  Candidate Only(const Op& op, double seconds) const {
    const KernelInfo& kernel = kernels_[MatmulKernels().size() + op.index() - 1];
    Candidate only{.kernel = kernel.name, .why_not = kernel.why_off};
    only.feasible = only.chosen = kernel.why_off.empty();
    if (only.feasible) only.modelled_seconds = seconds;
    return only;
  }

  const DeviceInfo info_;
  const std::vector<KernelInfo> kernels_;  // never resized: pool_ points at the names
  Pool pool_;
  Budget budget_;
  Workers workers_;
};

absl::Status CheckOptions(const CpuBackendOptions& options) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads=", options.threads, " is negative; use 0 for all cores"));
  }
  if (options.memory_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_bytes=", options.memory_bytes, " is negative; use 0 for half of the machine's"));
  }
  return CheckCpuKernels(options.name, options.disabled_kernels);
}

}  // namespace
}  // namespace cpu

absl::Status CheckCpuKernels(const std::string& device, const std::vector<std::string>& names) {
  std::set<std::string> known;
  for (const KernelInfo& kernel : cpu::AllKernels()) known.insert({kernel.name, kernel.family});
  for (const std::string& name : names) {
    if (known.count(name) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("disabled kernel \"", name, "\" does not exist on ", device,
                     "; use names or families out of ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

int64_t CpuMemoryBytes() { return cpu::UsableMemory(); }

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  if (absl::Status status = cpu::CheckOptions(options); !status.ok()) return status;
  const int threads = options.threads > 0 ? options.threads : cpu::UsableCores();
  openblas_set_num_threads(threads);
  return std::make_unique<cpu::CpuBackend>(options, threads);
}

}  // namespace gemmd::kernels
