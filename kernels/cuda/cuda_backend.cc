#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/cpu/device_info.h"
#include "kernels/cuda/cuda_backend_for_test.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_info.h"
#include "kernels/cuda/device/host_node.h"
#include "kernels/cuda/device/peer_access.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/grouped/gradient_self_test.h"
#include "kernels/cuda/grouped/grouped_choice.h"
#include "kernels/cuda/grouped/grouped_self_test.h"
#include "kernels/cuda/grouped/k_grouped_op.h"
#include "kernels/cuda/matmul/pool_tuner.h"
#include "kernels/cuda/matmul/self_test.h"
#include "kernels/cuda/memory/cuda_memory.h"
#include "kernels/cuda/memory/output_memory.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/cuda_stream.h"
#include "kernels/cuda/run/stream_mark.h"
#include "kernels/cuda/run/stream_signal.h"
#include "kernels/cuda/tuning/table_folder.h"
#include "kernels/other_kernels.h"
#include "kernels/program_cache.h"

namespace gemmd::kernels {
namespace cuda {
namespace {

// Remembered programs. A program of a decode step has some hundreds of ops, a kilobyte each.
constexpr size_t kMaxPrograms = 256;
constexpr size_t kMaxProgramOps = 16384;

// TmaGroupedName's and GradientName's.
constexpr const char* kTmaGroupedNames[] = {kFp8GroupedName,  kI8BlockGroupedName,
                                            kBf16GroupedName, kF16GroupedName,
                                            kI8GroupedName,   kFp8RowGroupedName};
constexpr const char* kGradientNames[] = {kGradientName, kBf16GradientName, kF16GradientName};

bool Contains(absl::Span<const char* const> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "13000": what the driver serves.
std::string DriverVersion() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? absl::StrCat(version) : "unknown";
}

// What the config disables, and what failed its self-test.
void TurnOff(const GemmPoolOptions& pool, KernelInfo& kernel) {
  if (const auto found = pool.disabled.find(kernel.name); found != pool.disabled.end()) {
    kernel.why_off = absl::StrCat("it is disabled on this device: ", found->second);
  } else if (const auto failed = pool.quarantined.find(kernel.name);
             failed != pool.quarantined.end()) {
    kernel.quarantined = true;
    kernel.why_off = absl::StrCat("it is quarantined on this device, for its self-test failed: ",
                                  failed->second);
  }
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(DeviceInfo info, HostNode node, GemmPoolOptions pool)
      : info_(std::move(info)),
        ordinal_(pool.device.ordinal),
        fence_(info_.name),
        peers_(info_.name, ordinal_, fence_),
        marks_(ordinal_, fence_),
        pinned_(ordinal_, fence_, std::move(node)),
        memory_(info_, ordinal_,
                {.device_bytes = info_.memory_bytes,
                 .host_bytes = cpu::DescribeCpu(info_.name, 1, 0).memory_bytes},
                pinned_, fence_) {
    std::vector<KernelInfo> others = OtherKernels("sm90");
    const size_t ops = others.size();
    for (const auto& [name, type] :
         {std::pair(kFp8GroupedName, "e4m3"), {kI8BlockGroupedName, "i8"}}) {
      others.push_back({name, name,
                        absl::StrCat("grouped ", type,
                                     " with scales of 1x128 and 128x128: weights on the tensor "
                                     "cores' row side for groups of up to 64 rows, a's rows for "
                                     "others")});
    }
    for (const auto& [name, type] :
         {std::pair(kBf16GroupedName, "bf16"),
          {kF16GroupedName, "f16"},
          {kI8GroupedName, "i8 with scales by row or tensor, or none"},
          {kFp8RowGroupedName, "e4m3 with scales by row or tensor, or none"}}) {
      others.push_back({name, name,
                        absl::StrCat("grouped ", type,
                                     ": the weights on the tensor cores' row "
                                     "side, up to 256 of a group's rows as columns")});
    }
    for (const auto& [name, type] :
         {std::pair(kBf16GradientName, "bf16"), {kF16GradientName, "f16"}}) {
      others.push_back({name, name,
                        absl::StrCat("k-grouped gradients of weights: ", type,
                                     ", both operands along k or both along their rows, into f32 "
                                     "or 16 bits, added to c or not")});
    }
    for (KernelInfo& other : others) TurnOff(pool, other);
    kernel_set_.emplace(std::move(pool));
    const absl::Span<const KernelInfo> matmuls = kernel_set_->matmul.kernels();
    kernels_.assign(matmuls.begin(), matmuls.end());
    kernels_.insert(kernels_.end(), others.begin(), others.end());
    const auto enabled = [&](size_t i) {
      return others[i].why_off.empty() ? kernels_[matmuls.size() + i].name : std::string_view();
    };
    for (size_t i = 0; i < ops; ++i) kernel_set_->others[i + 1] = enabled(i);
    for (size_t i = ops; i < others.size(); ++i) {
      const std::string_view name = others[i].name;
      if (Contains(kTmaGroupedNames, name)) kernel_set_->tma_grouped.push_back(enabled(i));
      if (Contains(kGradientNames, name)) kernel_set_->k_grouped.push_back(enabled(i));
    }
    // Members of the pool, which serve grouped ops too.
    const auto member = [&](std::string_view name) {
      const KernelInfo& info = InfoOf(name);
      return info.why_off.empty() ? info.name : std::string_view();
    };
    kernel_set_->fp8_gate = member(kFp8GateName);
    kernel_set_->k_grouped.push_back(member(kGradientName));
    kernel_set_->memory_bytes_per_s = info_.memory_bytes_per_s;
    tuner_.emplace(kernel_set_->matmul, kernel_set_->device, DriverVersion(),
                   PoolTuner::Hooks{.compile =
                                        [this](absl::Span<const Op> ops) {
                                          return CudaProgram::Compile(
                                              ops, *kernel_set_, CudaProgram::Timing::kEveryOp);
                                        },
                                    .changed = [this] { programs_.Clear(); }});
  }

  const DeviceInfo& info() const override { return info_; }
  absl::Span<const KernelInfo> kernels() const override { return kernels_; }
  absl::Status health() const override { return fence_.status(); }
  int64_t pinned_bytes() const override { return pinned_.bytes(); }
  absl::Status CanReach(const Backend& home) const override { return peers_.Enable(home.info()); }
  bool signals() const override { return CanSignal(); }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t size_bytes, MemoryKind kind) override {
    return memory_.Allocate(size_bytes, kind);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportShared(int fd, int64_t size_bytes) override {
    return memory_.ImportShared(fd, size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportDevice(const DeviceHandle& handle) override {
    return memory_.ImportDevice(handle);
  }
  std::unique_ptr<HostMemory> AllocateOutput(int64_t size_bytes) override {
    return outputs_.Allocate(size_bytes);
  }
  absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops) override {
    return programs_.Get(ops, [&] { return CudaProgram::Compile(ops, *kernel_set_); });
  }
  std::vector<Candidate> Explain(const MatmulProblem& problem) const override {
    return kernel_set_->matmul.Explain(problem);
  }
  std::vector<Candidate> ExplainGrouped(const GroupedMatmulOp& op) const override {
    return RankGrouped(op, InfoOf(TmaGroupedName(op.a)), InfoOf(kAnyGroupedName),
                       InfoOf(kFp8GateName), info_.memory_bytes_per_s);
  }
  std::vector<Candidate> ExplainKGrouped(const KGroupedMatmulOp& op) const override {
    return RankKGrouped(op, InfoOf(GradientName(op.a.values.dtype)), InfoOf(kAnyKGroupedName),
                        info_.memory_bytes_per_s);
  }
  std::unique_ptr<Stream> CreateStream(const StreamOptions& options) override {
    return std::make_unique<CudaStream>(ordinal_, pinned_, fence_, options);
  }
  bool makes_marks() const override { return true; }
  absl::StatusOr<std::shared_ptr<Mark>> MakeMark() override { return marks_.Make(); }
  Tuner* tuner() override { return &*tuner_; }

 private:
  // Of a kernel that every device of this kind has.
  const KernelInfo& InfoOf(std::string_view name) const {
    return *std::find_if(kernels_.begin(), kernels_.end(),
                         [&](const KernelInfo& kernel) { return kernel.name == name; });
  }

  const DeviceInfo info_;
  const int ordinal_;
  std::optional<KernelSet> kernel_set_;  // set by the constructor, for good
  std::vector<KernelInfo> kernels_;      // never resized after it: kernel_set_ points at the names
  Fence fence_;
  mutable PeerAccess peers_;  // thread-safe, and what it remembers is no state of the device
  MarkPool marks_;
  PinnedPool pinned_;
  OutputMemory outputs_{pinned_};
  MemorySpace memory_;
  ProgramCache programs_{kMaxPrograms, kMaxProgramOps};
  std::optional<PoolTuner> tuner_;  // set by the constructor, for good
};

// Names or families to why they are off. `matmuls` are the pool's.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> Disabled(
    const CudaBackendOptions& options, const GemmPoolOptions& pool) {
  std::set<std::string> families;
  std::set<std::string> names;
  const auto add = [&](const KernelInfo& info) {
    families.insert(info.family);
    names.insert(info.name);
  };
  for (const GemmVariant& variant : AllVariants()) add({Name(variant), variant.entry().name, ""});
  for (const auto& family : pool.families) {
    for (const KernelInfo& member : family->members()) add(member);
  }
  for (const KernelInfo& other : OtherKernels("sm90")) add(other);
  for (const char* name : kTmaGroupedNames) add({name, name, ""});
  for (const char* name : kGradientNames) add({name, name, ""});
  absl::flat_hash_map<std::string, std::string> disabled;
  for (const std::string& name : options.disabled_kernels) {
    if (names.count(name) == 0 && families.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "disabled kernel \"", name, "\" does not exist on ", options.name,
          "; use a kernel's name or one of the families ", absl::StrJoin(families, ", ")));
    }
    disabled.emplace(name, "the config disables it");
  }
  return disabled;
}

// Loads the kernels now: the driver would do it at each one's first launch, and wait for the device
// to do so. Fails when the binary has no code for it.
absl::Status PrepareFamilies(const std::string& name) {
  std::vector<const GemmFamilyEntry*> families(std::begin(kGemmFamilies), std::end(kGemmFamilies));
  for (const StreamFamilyEntry* stream : kStreamFamilies) families.push_back(&stream->family);
  for (const GemmFamilyEntry* family : families) {
    for (int config = 0; config < family->num_configs; ++config) {
      const absl::Status status =
          ToStatus(family->prepare(config),
                   absl::StrCat("device ", name, ": preparing ", family->name, " ", config));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

bool IsOff(const GemmPoolOptions& pool, const KernelInfo& info) {
  return pool.disabled.contains(info.name) || pool.disabled.contains(info.family);
}

// Fills pool.quarantined.
absl::Status SelfTest(const std::string& name, std::vector<std::string> spoiled,
                      GemmPoolOptions& pool) {
  SelfTestOptions options{.device = pool.device,
                          .families = pool.families,
                          .is_off = [&](const KernelInfo& info) { return IsOff(pool, info); },
                          .spoiled = std::move(spoiled)};
  options.families.push_back(
      std::make_shared<TmaFamily>(pool.device, pool.memory_bytes_per_s, pool.prepare_tma));
  auto broken = FindBrokenKernels(options);
  if (!broken.ok()) {
    return absl::Status(broken.status().code(),
                        absl::StrCat("device ", name, ": ", broken.status().message()));
  }
  pool.quarantined = *std::move(broken);
  GroupedSelfTestOptions grouped{.device = pool.device, .spoiled = options.spoiled};
  const auto add = [&](const char* kernel, std::vector<std::string>& kernels) {
    if (!pool.disabled.contains(kernel)) kernels.emplace_back(kernel);
  };
  for (const char* kernel : kTmaGroupedNames) add(kernel, grouped.kernels);
  for (const char* kernel : {kAnyGroupedName, kFp8GateName}) add(kernel, grouped.kernels);
  broken = FindBrokenGroupedKernels(grouped);
  if (!broken.ok()) {
    return absl::Status(broken.status().code(),
                        absl::StrCat("device ", name, ": ", broken.status().message()));
  }
  pool.quarantined.insert(broken->begin(), broken->end());
  GradientSelfTestOptions gradients{.device = pool.device, .spoiled = options.spoiled};
  for (const char* kernel : kGradientNames) add(kernel, gradients.kernels);
  add(kAnyKGroupedName, gradients.kernels);
  broken = FindBrokenGradientKernels(gradients);
  if (!broken.ok()) {
    return absl::Status(broken.status().code(),
                        absl::StrCat("device ", name, ": ", broken.status().message()));
  }
  pool.quarantined.insert(broken->begin(), broken->end());
  return absl::OkStatus();
}

// None when it is off, or a thread cannot be bound there.
HostNode NodeToBindTo(const CudaBackendOptions& options, const DeviceTraits& device) {
  if (!options.numa_binding) return {};
  HostNode node = FindHostNode(device);
  const absl::Status bound = RunOnNode(node, [] {});
  if (bound.ok()) return node;
  if (options.unbound) options.unbound(bound);
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackendForTest(const CudaBackendOptions& options,
                                                                  CudaTestHooks hooks) {
  if (options.memory_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_bytes=", options.memory_bytes, " is negative; use 0 for what the GPU has free"));
  }
  GemmPoolOptions pool;
  pool.prepare_tma = PrepareTma;
  const auto more = std::make_shared<const PlainFamily>(std::move(hooks.more_kernels));
  pool.families = MatmulFamilies(DeviceTraits(), 0);
  pool.families.push_back(more);
  auto disabled = Disabled(options, pool);
  if (!disabled.ok()) return disabled.status();
  pool.disabled = *std::move(disabled);
  auto device = FindDevice(options.name, options.ordinal);
  if (!device.ok()) return device.status();
  pool.device = *std::move(device);
  if (!options.tuning_table.empty()) {
    auto times = LoadTables(options.tuning_table, pool.device.model);
    if (!times.ok()) return times.status();
    if (options.stale_tuning && !times->note.empty()) options.stale_tuning(times->note);
    pool.table = std::move(times->table);
  }
  auto info = DescribeGpu(options.name, pool.device, options.memory_bytes);
  if (!info.ok()) return info.status();
  pool.memory_bytes_per_s = info->memory_bytes_per_s;
  pool.families = MatmulFamilies(pool.device, pool.memory_bytes_per_s);
  pool.families.push_back(more);
  if (absl::Status status = PrepareFamilies(options.name); !status.ok()) return status;
  if (options.self_test) {
    const absl::Status status = SelfTest(options.name, std::move(hooks.spoiled_kernels), pool);
    if (!status.ok()) return status;
  }
  HostNode node = NodeToBindTo(options, pool.device);
  info->numa_node = node.node;
  return std::make_unique<CudaBackend>(*std::move(info), std::move(node), std::move(pool));
}

}  // namespace cuda

absl::Status CheckGpu(const std::string& name, int ordinal) {
  return cuda::FindDevice(name, ordinal).status();
}

absl::Status CheckGpuKernels(const std::string& device, const std::vector<std::string>& names) {
  cuda::GemmPoolOptions pool;
  pool.families = cuda::MatmulFamilies(cuda::DeviceTraits(), 0);
  return cuda::Disabled({.name = device, .disabled_kernels = names}, pool).status();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  return cuda::CreateCudaBackendForTest(options, {});
}

}  // namespace gemmd::kernels
