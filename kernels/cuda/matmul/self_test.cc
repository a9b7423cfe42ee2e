#include "kernels/cuda/matmul/self_test.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/matmul/placed_args.h"
#include "kernels/cuda/matmul/self_test_bench.h"
#include "kernels/cuda/sm90/launch/scratch_front.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

Bindings BindingsOf(absl::Span<const std::vector<std::byte>> slots) {
  Bindings bindings;
  for (const std::vector<std::byte>& slot : slots) {
    bindings.slots.push_back(const_cast<std::byte*>(slot.data()));  // read only
  }
  return bindings;
}

}  // namespace

static_assert(SelfTestProblem::kM % 4 == 0, "a's scales are loaded by TMA: rows of 16 bytes");

SelfTestProblem::SelfTestProblem(Mma mma, absl::Span<const GemmVariant> variants) {
  const GemmConfig kind = {.mma = mma};
  int64_t blocks = 1;
  for (const GemmVariant& variant : variants) {
    if (variant.shape().mma != mma) continue;
    const int64_t least = variant.split * variant.shape().k_blocks;
    blocks = std::max({blocks, least, int64_t{variant.streams_k() ? kLeastStreamTile : 1}});
  }
  const int64_t k_blocks = blocks + 1;
  const int64_t k = k_blocks * kind.block_k();
  op_.a = {Dense(0, KindOf(mma).operand, MakeDims({kM, k})), {}, {}};
  op_.b = {Dense(2, KindOf(mma).operand, MakeDims({kN, k})), {}, {}};
  if (kind.scales_blocks()) {
    op_.a.granularity = ScaleGranularity::kBlock1x128;
    op_.a.scales = TensorRef{1, 0, DType::kF32, MakeDims({kM, k_blocks}), MakeDims({1, kM})};
    op_.b.granularity = ScaleGranularity::kBlock128x128;
    op_.b.scales = Dense(3, DType::kF32, MakeDims({(kN + kBlockK - 1) / kBlockK, k_blocks}));
  } else if (KindOf(mma).scales == KindScales::kAtTheEnd) {
    op_.a.granularity = op_.b.granularity = ScaleGranularity::kPerRow;
    op_.a.scales = Dense(1, DType::kF32, MakeDims({kM}));
    op_.b.scales = Dense(3, DType::kF32, MakeDims({kN}));
  }
  op_.d = Dense(kResultSlot, DType::kBF16, MakeDims({kM, kN}));
  SelfTestRandom random;
  for (const Operand* operand : {&op_.a, &op_.b}) {
    slots_.push_back(RandomValues(operand->values, random));
    slots_.emplace_back();
    if (operand->scales) slots_.back() = RandomScales(*operand->scales, random);
  }
  slots_.emplace_back(BytesOf(op_.d) + kGuardBytes, std::byte{0xff});
  expected_ = ReferenceMatmul(op_, BindingsOf(slots_));
  for (double value : expected_) rms_ += value * value;
  rms_ = std::sqrt(rms_ / static_cast<double>(expected_.size()));
}

std::string SelfTestProblem::Judge(absl::Span<const std::byte> result) const {
  const int64_t bytes = BytesOf(op_.d);
  if (result.size() != slots_[kResultSlot].size()) return "its result has another size";
  if (absl::c_any_of(result.subspan(bytes), [](std::byte b) { return b != std::byte{0xff}; })) {
    return "it wrote beyond the result";
  }
  std::vector<std::byte> d(result.begin(), result.begin() + bytes);
  TensorRef tensor = op_.d;
  tensor.slot = 0;
  const std::vector<double> values = ReadTensor(tensor, d.data());
  int64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = SelfTestAllowed(expected_[i], rms_);
    if (std::abs(values[i] - expected_[i]) <= allowed) continue;  // false for a NaN
    if (wrong++ > 0) continue;
    first = absl::StrCat("element (", i / kN, ", ", i % kN, ") is ", values[i], ", not ",
                         expected_[i], " +- ", allowed);
  }
  if (wrong == 0) return "";
  return absl::StrCat(wrong, " of ", values.size(), " elements are wrong: ", first);
}

void SelfTestProblem::Spoil(absl::Span<std::byte> result) const {
  const auto largest =
      absl::c_max_element(expected_, [](double x, double y) { return std::abs(x) < std::abs(y); });
  result[2 * (largest - expected_.begin()) + 1] ^= std::byte{0x80};
}

namespace {

using Broken = absl::flat_hash_map<std::string, std::string>;

// The members that serve such operands.
absl::Status FindBrokenOf(Mma mma, const SelfTestOptions& options, Broken& broken) {
  const SelfTestProblem problem(mma, AllVariants());
  const MatmulProblem posed = ProblemOf(problem.op());
  int64_t scratch_bytes = 0;
  for (const auto& family : options.families) {
    for (int i = 0; i < static_cast<int>(family->members().size()); ++i) {
      if (!family->WhyNot(i, posed).empty()) continue;
      scratch_bytes = std::max(scratch_bytes, family->ScratchBytes(i, posed));
    }
  }
  std::vector<std::vector<std::byte>> slots(problem.slots().begin(), problem.slots().end());
  slots.emplace_back(kScratchFront + scratch_bytes, std::byte{0});
  const absl::StatusOr<std::unique_ptr<SelfTestBench>> bench =
      SelfTestBench::Make(slots, SelfTestProblem::kResultSlot, options.device.ordinal);
  if (!bench.ok()) return bench.status();
  const MatmulArgs args = PlacedArgs(problem.op(), (*bench)->slots());
  std::byte* const scratch = (*bench)->slots().back() + kScratchFront;
  const auto test = [&](const std::string& name, absl::FunctionRef<absl::Status()> launch) {
    const bool spoil = absl::c_linear_search(options.spoiled, name);
    const auto judge = [&](absl::Span<std::byte> result) {
      if (spoil) problem.Spoil(result);
      return problem.Judge(result);
    };
    const absl::StatusOr<std::string> why = TryKernel(**bench, launch, judge);
    if (!why.ok()) return TookTheDevice(name, why.status());
    if (!why->empty()) broken.emplace(name, *why);
    return absl::OkStatus();
  };
  for (const auto& family : options.families) {
    for (int i = 0; i < static_cast<int>(family->members().size()); ++i) {
      const KernelInfo& info = family->members()[i];
      if (options.is_off(info) || !family->WhyNot(i, args.problem).empty()) continue;
      const absl::Status status = test(info.name, [&]() -> absl::Status {
        const auto matmul = family->Prepare(i, args, scratch);
        if (!matmul.ok()) return matmul.status();
        return (*matmul)->Launch(/*overlap=*/false, (*bench)->stream());
      });
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenKernels(
    const SelfTestOptions& options) {
  Broken broken;
  for (const OperandKind& kind : kOperandKinds) {
    if (absl::Status status = FindBrokenOf(kind.mma, options, broken); !status.ok()) return status;
  }
  return broken;
}

}  // namespace gemmd::kernels::cuda
