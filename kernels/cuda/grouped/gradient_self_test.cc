#include "kernels/cuda/grouped/gradient_self_test.h"

#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/grouped/k_grouped_op.h"
#include "kernels/cuda/matmul/self_test_bench.h"
#include "kernels/k_grouped.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int32_t kEnds[] = {130, 130, 513, 768};  // of starts at multiples of 128
constexpr int64_t kM = 264, kN = 136, kK = 768;

}  // namespace

GradientTrial::GradientTrial(DType a, DType b, DType out, bool along_rows) {
  const ScaleGranularity scales =
      IsFp8(a) ? ScaleGranularity::kBlock1x128 : ScaleGranularity::kNone;
  op_ = *OpOf(KGroupedProblem{.groups = std::size(kEnds),
                              .m = kM,
                              .n = kN,
                              .k = kK,
                              .a = a,
                              .b = b,
                              .out = out,
                              .a_granularity = scales,
                              .b_granularity = scales});
  if (along_rows) {
    for (TensorRef* values : {&op_.a.values, &op_.b.values}) {
      values->strides = MakeDims({1, values->shape[0]});
    }
  }
  SelfTestRandom random;
  ForEachTensor(Op(op_), [&](const TensorRef& tensor, Access access) {
    slots_.resize(std::max<size_t>(slots_.size(), tensor.slot + 1));
    std::vector<std::byte>& slot = slots_[tensor.slot];
    if (access == Access::kWrite) {
      slot.assign(BytesOf(tensor) + kGuardBytes, std::byte{0xff});
    } else if (tensor.dtype == DType::kI32) {
      slot.resize(sizeof(kEnds));
      std::memcpy(slot.data(), kEnds, sizeof(kEnds));
    } else {
      slot =
          tensor.dtype == DType::kF32 ? RandomScales(tensor, random) : RandomValues(tensor, random);
    }
  });
  DataFault fault;
  const std::vector<GroupColumns> groups = ReadColumns(op_, kEnds, fault);
  std::vector<bool> used(kK, false);
  for (const GroupColumns& group : groups) {
    std::fill_n(used.begin() + group.first, group.k, true);
  }
  for (const TensorRef* values : {&op_.a.values, &op_.b.values}) {
    std::vector<std::byte>& slot = slots_[values->slot];
    for (size_t i = 0; IsFp8(a) && i < slot.size(); ++i) {
      if (!used[i % kK]) slot[i] = std::byte{0x7f};  // NaN in either type
    }
  }
  Bindings bindings;
  for (std::vector<std::byte>& slot : slots_) bindings.slots.push_back(slot.data());
  double sum = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (double value :
         ReferenceMatmul(MatmulOf(op_, static_cast<int64_t>(g), groups[g]), bindings)) {
      expected_.push_back(value);
      sum += value * value;
    }
  }
  rms_ = std::sqrt(sum / static_cast<double>(expected_.size()));
}

std::string GradientTrial::Judge(absl::Span<const std::byte> result) const {
  const int64_t bytes = BytesOf(op_.d);
  if (result.size() != slots_[result_slot()].size()) return "its result has another size";
  if (!absl::c_all_of(result.subspan(bytes), [](std::byte b) { return b == std::byte{0xff}; })) {
    return "it wrote beyond the result";
  }
  std::vector<std::byte> slot(result.begin(), result.begin() + bytes);
  TensorRef d = op_.d;
  d.slot = 0;
  const std::vector<double> values = ReadTensor(d, slot.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = SelfTestAllowed(expected_[i], rms_);
    if (std::abs(values[i] - expected_[i]) <= allowed) continue;  // false for a NaN
    return absl::StrCat("element (", i / (kM * kN), ", ", i / kN % kM, ", ", i % kN, ") is ",
                        values[i], ", not ", expected_[i], " +- ", allowed);
  }
  return "";
}

void GradientTrial::Spoil(absl::Span<std::byte> result) const {
  size_t largest = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    if (std::abs(expected_[i]) > std::abs(expected_[largest])) largest = i;
  }
  const int size = SizeBytes(op_.d.dtype);
  result[size * largest + size - 1] ^= std::byte{0x80};
}

std::vector<GradientTrial> GradientTrials() {
  std::vector<GradientTrial> trials;
  for (const DType a : {DType::kE4M3, DType::kE5M2}) {
    for (const DType b : {DType::kE4M3, DType::kE5M2}) {
      trials.emplace_back(a, b, trials.size() % 2 == 0 ? DType::kF32 : DType::kBF16);
    }
  }
  for (const DType type : {DType::kBF16, DType::kF16}) {
    trials.emplace_back(type, type, type, false);
    trials.emplace_back(type, type, DType::kF32, true);
  }
  return trials;
}

namespace {

// One problem by one kernel, config `config` of it, on a bench of its own, whose last slot is the
// op's scratch memory with the fault's place behind it.
absl::StatusOr<std::string> Try(const GradientTrial& trial, bool fast, int config, bool spoil,
                                const DeviceTraits& device) {
  constexpr int64_t kFaultBytes = 256;
  KGroupedLayout layout = LayoutOf(trial.op(), fast);
  layout.config = config;
  std::vector<std::vector<std::byte>> slots(trial.slots().begin(), trial.slots().end());
  slots.emplace_back(layout.scratch_bytes + kFaultBytes, std::byte{0});
  const auto bench = SelfTestBench::Make(slots, trial.result_slot(), device.ordinal);
  if (!bench.ok()) return bench.status();
  std::byte* const scratch = (*bench)->slots().back();
  auto* const fault = reinterpret_cast<DataFault*>(scratch + layout.scratch_bytes);
  const auto launches = PrepareKGrouped(trial.op(), layout, (*bench)->slots(), scratch, device);
  const auto launch = [&] {
    return launches.ok() ? QueueKGrouped(*launches, fault, false, (*bench)->stream())
                         : launches.status();
  };
  return TryKernel(**bench, launch, [&](absl::Span<std::byte> result) {
    if (spoil) trial.Spoil(result);
    return trial.Judge(result);
  });
}

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenGradientKernels(
    const GradientSelfTestOptions& options) {
  absl::flat_hash_map<std::string, std::string> broken;
  if (options.kernels.empty()) return broken;
  for (const GradientTrial& trial : GradientTrials()) {
    const DType a = trial.op().a.values.dtype, b = trial.op().b.values.dtype;
    for (const std::string& name : options.kernels) {
      const bool fast = name != kAnyKGroupedName;
      if (fast && name != GradientName(a)) continue;
      const bool spoil = absl::c_linear_search(options.spoiled, name);
      // All tables have as many.
      for (int config = 0; config < (fast ? kSm90Fp8Gradient.num_configs : 1); ++config) {
        const auto why = Try(trial, fast, config, spoil, options.device);
        if (!why.ok()) return TookTheDevice(name, why.status());
        if (why->empty()) continue;
        broken.try_emplace(name, absl::StrCat(Text(Name(a)), " by ", Text(Name(b)), ", config ",
                                              config, ": ", *why));
      }
    }
  }
  return broken;
}

}  // namespace gemmd::kernels::cuda
