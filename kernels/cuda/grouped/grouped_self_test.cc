#include "kernels/cuda/grouped/grouped_self_test.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/matmul/self_test_bench.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kAround = 5;    // rows of nobody in front of the groups and behind them
constexpr int64_t kBehind = 256;  // a slot's second tensor starts at a multiple of it
// Allowed of an element in E4M3: its rounding is at most 2^-4 of it, behind one to BF16 in front of
// a gate of its own.
constexpr double kOfE4m3 = 1.0 / 14, kOfRms = 0.02;
constexpr double kUntouched = std::numeric_limits<double>::quiet_NaN();

std::vector<GroupRows> Place(GroupLayout layout, absl::Span<const int64_t> rows) {
  std::vector<GroupRows> groups;
  int64_t at = layout == GroupLayout::kEnds ? 0 : kAround;
  for (size_t g = 0; g < rows.size(); ++g) {
    if (layout == GroupLayout::kCounts) {
      groups.push_back({static_cast<int64_t>(g), 0, rows[g]});
    } else {
      groups.push_back({0, at, rows[g]});
      at += rows[g];
    }
  }
  return groups;
}

std::vector<int32_t> NumbersOf(GroupLayout layout, absl::Span<const GroupRows> groups, int64_t m) {
  std::vector<int32_t> numbers;
  if (layout == GroupLayout::kRowIds) numbers.assign(static_cast<size_t>(m), -1);
  if (layout == GroupLayout::kOffsets) numbers.push_back(static_cast<int32_t>(groups[0].first));
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupRows& group = groups[g];
    if (layout == GroupLayout::kRowIds) {
      std::fill_n(numbers.begin() + group.first, group.rows, static_cast<int32_t>(g));
    } else {
      const int64_t first = layout == GroupLayout::kCounts ? 0 : group.first;
      numbers.push_back(static_cast<int32_t>(first + group.rows));
    }
  }
  return numbers;
}

// Each row's n gates and, behind them, n ups.
std::vector<double> Gated(const std::vector<double>& product, int64_t n) {
  std::vector<double> values;
  for (size_t row = 0; row < product.size(); row += 2 * n) {
    for (int64_t i = 0; i < n; ++i) {
      values.push_back(ReferenceActivation(Activation::kSilu, product[row + i]) *
                       product[row + n + i]);
    }
  }
  return values;
}

}  // namespace

GroupedTrial::GroupedTrial(GroupLayout layout, absl::Span<const int64_t> rows, int64_t n, int64_t k,
                           Kind kind, DType operands, Scales scales, DType out) {
  const std::vector<GroupRows> groups = Place(layout, rows);
  const int64_t end = layout == GroupLayout::kCounts ? *absl::c_max_element(rows)
                                                     : groups.back().first + groups.back().rows;
  const bool gated = kind == Kind::kGated || kind == Kind::kGatedApart;
  const bool activated = kind == Kind::kActivated, finished = activated || kind == Kind::kAdjusted;
  const bool blocks = scales == Scales::kBlocks;
  const ScaleGranularity rows_alone =
      scales == Scales::kRows ? ScaleGranularity::kPerRow : ScaleGranularity::kNone;
  const GroupedProblem problem{
      .groups = static_cast<int64_t>(rows.size()),
      .m = end + kAround,
      .n = n,
      .k = k,
      .layout = layout,
      .operands = operands,
      .out = gated ? DType::kE4M3 : out,
      .a_granularity = blocks ? ScaleGranularity::kBlock1x128 : rows_alone,
      .b_granularity = blocks ? ScaleGranularity::kBlock128x128 : rows_alone,
      .apart = kind == Kind::kApart || kind == Kind::kGatedApart,
      .gate = gated ? std::optional(Gate{}) : std::nullopt,
      .has_bias = activated,
      .activation = activated  ? Activation::kSilu
                    : finished ? Activation::kRelu
                               : Activation::kNone};
  op_ = *OpOf(problem);  // of numbers that are good ones
  if (operands == DType::kI8 && out == DType::kF16) op_.alpha = 0x1p-16f;  // else above its largest
  if (finished) op_.alpha = operands == DType::kI8 ? 0x1p-16f : 0x1p-4f;   // else a bias is nothing
  if (gated) {
    op_.d_scales->slot = op_.d.slot;
    op_.d_scales->offset_bytes = (BytesOf(op_.d) + kBehind - 1) / kBehind * kBehind;
  }
  Fill(NumbersOf(layout, groups, problem.m));
  Expect(groups);
}

void GroupedTrial::Fill(absl::Span<const int32_t> numbers) {
  SelfTestRandom random;
  ForEachTensor(Op(op_), [&](const TensorRef& tensor, Access access) {
    slots_.resize(std::max<size_t>(slots_.size(), tensor.slot + 1));
    std::vector<std::byte>& slot = slots_[tensor.slot];
    if (access == Access::kWrite) {
      slot.assign(ResultBytes() + kGuardBytes, std::byte{0xff});
    } else if (tensor.dtype == DType::kI32) {
      slot.resize(numbers.size() * sizeof(int32_t));
      std::memcpy(slot.data(), numbers.data(), slot.size());
    } else {
      slot =
          tensor.dtype == DType::kF32 ? RandomScales(tensor, random) : RandomValues(tensor, random);
    }
  });
}

int64_t GroupedTrial::ResultBytes() const {
  return op_.d_scales ? op_.d_scales->offset_bytes + BytesOf(*op_.d_scales) : BytesOf(op_.d);
}

void GroupedTrial::Expect(absl::Span<const GroupRows> groups) {
  Bindings bindings;
  for (std::vector<std::byte>& slot : slots_) bindings.slots.push_back(slot.data());
  const int64_t n = op_.d.shape[op_.d.shape.rank - 1];
  expected_.assign(BytesOf(op_.d) / SizeBytes(op_.d.dtype), kUntouched);
  double sum = 0;
  int64_t written = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].rows == 0) continue;
    MatmulOp matmul = MatmulOf(op_, static_cast<int64_t>(g), groups[g]);
    if (op_.gate) matmul.d.shape[1] = 2 * n;  // of the reference alone
    std::vector<double> values = ReferenceMatmul(matmul, bindings);
    if (op_.gate) values = Gated(values, n);
    // d is dense: a group's rows are one run of it.
    std::copy(values.begin(), values.end(),
              expected_.begin() + matmul.d.offset_bytes / SizeBytes(op_.d.dtype));
    for (const double value : values) sum += value * value;
    written += static_cast<int64_t>(values.size());
  }
  rms_ = std::sqrt(sum / static_cast<double>(written));
}

std::string GroupedTrial::Judge(absl::Span<const std::byte> result) const {
  if (result.size() != slots_[result_slot()].size()) return "its result has another size";
  const auto untouched = [&](int64_t first, int64_t count) {
    return absl::c_all_of(result.subspan(first, count),
                          [](std::byte byte) { return byte == std::byte{0xff}; });
  };
  if (!untouched(ResultBytes(), kGuardBytes)) return "it wrote beyond the result";
  std::vector<std::byte> slot(result.begin(), result.begin() + ResultBytes());
  const auto read = [&](TensorRef tensor) {
    tensor.slot = 0;
    return ReadTensor(tensor, slot.data());
  };
  const std::vector<double> values = read(op_.d);
  const std::vector<double> scales = op_.d_scales ? read(*op_.d_scales) : std::vector<double>();
  const int64_t n = op_.d.shape[op_.d.shape.rank - 1];
  const int64_t blocks = (n + kScaleBlock - 1) / kScaleBlock;
  const int size = SizeBytes(op_.d.dtype);
  int64_t wrong = 0;
  std::string first;
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const int64_t block = i / n * blocks + i % n / kScaleBlock;
    const double value = scales.empty() ? values[i] : values[i] * scales[block];
    const bool mine = !std::isnan(expected_[i]);
    const double allowed = !mine            ? 0
                           : scales.empty() ? SelfTestAllowed(expected_[i], rms_)
                                            : kOfE4m3 * std::abs(expected_[i]) + kOfRms * rms_;
    if (mine ? std::abs(value - expected_[i]) <= allowed  // false for a NaN
             : untouched(i * size, size) &&
                   (scales.empty() ||
                    untouched(op_.d_scales->offset_bytes + block * 4, sizeof(float)))) {
      continue;
    }
    if (wrong++ > 0) continue;
    first = absl::StrCat("element (", i / n, ", ", i % n, ") is ", value,
                         mine ? absl::StrCat(", not ", expected_[i], " +- ", allowed)
                              : std::string(", of a row that is no group's"));
  }
  if (wrong == 0) return "";
  return absl::StrCat(wrong, " of ", values.size(), " elements are wrong: ", first);
}

void GroupedTrial::Spoil(absl::Span<std::byte> result) const {
  size_t largest = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    const bool larger = std::abs(expected_[i]) > std::abs(expected_[largest]);
    if (larger || std::isnan(expected_[largest])) largest = i;
  }
  const int size = SizeBytes(op_.d.dtype);
  result[size * largest + size - 1] ^= std::byte{0x80};
}

std::vector<GroupedTrial> GroupedTrials() {
  const std::vector<int64_t> mixed = {3, 0, 70, 20}, wide = {130, 65, 150, 170},
                             thin = {1, 64, 0, 17, 8}, all = {3, 0, 70, 140, 20},
                             units = {40, 0, 330, 200, 129}, pairs = {1100}, rests = {530, 265},
                             gated = {285, 150}, gated_few = {266, 150}, finished = {3, 70, 0, 400};
  std::vector<GroupedTrial> trials;
  using Kind = GroupedTrial::Kind;
  for (const Kind kind : {Kind::kPlain, Kind::kApart}) {
    trials.emplace_back(GroupLayout::kOffsets, mixed, 200, 384, kind);
    trials.emplace_back(GroupLayout::kCounts, all, 136, 272, kind);
    trials.emplace_back(GroupLayout::kEnds, units, 264, 256, kind);
    trials.emplace_back(GroupLayout::kOffsets, pairs, 136, 144, kind);
    trials.emplace_back(GroupLayout::kOffsets, rests, 328, 144, kind);
    trials.emplace_back(GroupLayout::kRowIds, thin, 256, 528, kind);
  }
  using Scales = GroupedTrial::Scales;
  for (const auto& [type, scales] : {std::pair(DType::kBF16, Scales::kNone),
                                     {DType::kF16, Scales::kNone},
                                     {DType::kI8, Scales::kRows},
                                     {DType::kE4M3, Scales::kRows}}) {
    const DType own = SizeBytes(type) == 1 ? DType::kBF16 : type;
    trials.emplace_back(GroupLayout::kOffsets, mixed, 200, 192, Kind::kPlain, type, scales);
    trials.emplace_back(GroupLayout::kCounts, all, 264, 208, Kind::kApart, type, scales, own);
    trials.emplace_back(GroupLayout::kEnds, wide, 264, 336, Kind::kPlain, type, scales,
                        DType::kF16);
    trials.emplace_back(GroupLayout::kRowIds, thin, 136, 512, Kind::kPlain, type, scales,
                        DType::kF32);
  }
  const DType int8 = DType::kI8;
  trials.emplace_back(GroupLayout::kOffsets, mixed, 200, 384, Kind::kPlain, int8, Scales::kBlocks);
  trials.emplace_back(GroupLayout::kCounts, all, 136, 272, Kind::kApart, int8, Scales::kBlocks);
  trials.emplace_back(GroupLayout::kEnds, units, 264, 256, Kind::kPlain, int8, Scales::kBlocks);
  trials.emplace_back(GroupLayout::kOffsets, pairs, 264, 144, Kind::kApart, int8, Scales::kBlocks);
  for (const auto& [type, scales] : {std::pair(DType::kE4M3, Scales::kBlocks),
                                     {DType::kI8, Scales::kBlocks},
                                     {DType::kBF16, Scales::kNone},
                                     {DType::kF16, Scales::kNone},
                                     {DType::kI8, Scales::kRows},
                                     {DType::kE4M3, Scales::kRows}}) {
    const DType own = SizeBytes(type) == 1 ? DType::kBF16 : type;
    trials.emplace_back(GroupLayout::kOffsets, finished, 200, 144, Kind::kAdjusted, type, scales,
                        own);
    trials.emplace_back(GroupLayout::kEnds, finished, 133, 144, Kind::kActivated, type, scales,
                        DType::kF32);
  }
  trials.emplace_back(GroupLayout::kOffsets, all, 512, 384, Kind::kGated);
  trials.emplace_back(GroupLayout::kCounts, mixed, 256, 272, Kind::kGated);
  trials.emplace_back(GroupLayout::kEnds, mixed, 256, 384, Kind::kGatedApart);
  trials.emplace_back(GroupLayout::kOffsets, gated, 768, 144, Kind::kGated);
  trials.emplace_back(GroupLayout::kRowIds, gated_few, 256, 256, Kind::kGatedApart);
  return trials;
}

std::vector<GroupedForm> FormsOf(std::string_view kernel) {
  const bool fp8 = kernel == kFp8GroupedName, gate = kernel == kFp8GateName;
  if (!fp8 && !gate && kernel != kI8BlockGroupedName) return {{}};
  std::vector<GroupedForm> forms;
  for (int grain = kGrainThatFills; grain < kGrains; ++grain) {
    forms.push_back({.rows = RowsKernel::kFew, .grain = grain});
  }
  if (!gate) {
    forms.push_back({.rows = RowsKernel::kUnits});
    forms.push_back({.rows = RowsKernel::kPairs});
  }
  if (fp8 || gate) forms.push_back({.rows = RowsKernel::kRests});
  return forms;
}

bool Serves(const GroupedForm& form, const GroupedMatmulOp& op) {
  return op.gate || !NeedsFinish(op) || Finishes(form.rows);
}

namespace {

// One problem by one kernel on a bench of its own, whose last slot is the op's scratch memory with
// the fault's place behind it.
absl::StatusOr<std::string> Try(const GroupedTrial& trial, const std::string& kernel,
                                const GroupedForm& form, const DeviceTraits& device,
                                absl::FunctionRef<std::string(absl::Span<std::byte>)> judge) {
  constexpr int64_t kFaultBytes = 256;
  GroupedLayout layout = LayoutOf(trial.op(), kernel != kAnyGroupedName, kernel == kFp8GateName);
  layout.rows = form.rows;
  std::vector<std::vector<std::byte>> slots(trial.slots().begin(), trial.slots().end());
  slots.emplace_back(kScratchHead + layout.scratch_bytes + kFaultBytes, std::byte{0});
  const auto bench = SelfTestBench::Make(slots, trial.result_slot(), device.ordinal);
  if (!bench.ok()) return bench.status();
  std::byte* const scratch = (*bench)->slots().back() + kScratchHead;
  auto* const fault = reinterpret_cast<DataFault*>(scratch + layout.scratch_bytes);
  // Kept to the end of the run, which may use what it holds.
  auto launches = PrepareGrouped(trial.op(), layout, (*bench)->slots(), scratch, device);
  if (launches.ok() && launches->block_scaled) launches->block_scaled->grain = form.grain;
  const auto launch = [&] {
    return launches.ok() ? QueueGrouped(*launches, fault, false, (*bench)->stream())
                         : launches.status();
  };
  return TryKernel(**bench, launch, judge);
}

std::string TrialText(const GroupedTrial& trial, const GroupedForm& form) {
  constexpr const char* kKernels[kRowsKernels] = {"", "units, ", "pairs, ", "rests, "};
  constexpr const char* kCuts[kGrains] = {"wide tiles, ", "half tiles, ", "thin tiles, "};
  const Dims& b = trial.op().b.values.shape;
  return absl::StrCat(
      "groups by ", kernels::Text(Name(trial.op().layout)),
      trial.op().table.empty() ? "" : ", matrices apart", trial.op().gate ? ", gated" : "",
      NeedsFinish(trial.op()) ? ", finished, " : ", ",
      kernels::Text(Name(trial.op().a.values.dtype)), ", ", kKernels[static_cast<int>(form.rows)],
      form.grain < 0 ? "" : kCuts[form.grain], "n=", b[1], " k=", b[2], ": ");
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> ResultOf(const GroupedTrial& trial,
                                                const std::string& kernel, const GroupedForm& form,
                                                const DeviceTraits& device) {
  std::vector<std::byte> kept;
  const auto why = Try(trial, kernel, form, device, [&](absl::Span<std::byte> result) {
    kept.assign(result.begin(), result.end());
    return trial.Judge(result);
  });
  if (!why.ok()) return why.status();
  if (!why->empty()) return absl::InternalError(absl::StrCat(TrialText(trial, form), *why));
  return kept;
}

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenGroupedKernels(
    const GroupedSelfTestOptions& options) {
  absl::flat_hash_map<std::string, std::string> broken;
  if (options.kernels.empty()) return broken;
  for (const GroupedTrial& trial : GroupedTrials()) {
    for (const std::string& name : options.kernels) {
      const bool fused = name == kFp8GateName;
      if (fused && (!trial.op().gate || !WhyNotFused(trial.op()).empty())) continue;
      const bool any = name == kAnyGroupedName;
      if (!fused && !any && name != TmaGroupedName(trial.op().a)) continue;
      const bool spoil = absl::c_linear_search(options.spoiled, name);
      for (const GroupedForm& form : FormsOf(name)) {
        if (!Serves(form, trial.op())) continue;
        const auto why = Try(trial, name, form, options.device, [&](absl::Span<std::byte> result) {
          if (spoil) trial.Spoil(result);
          return trial.Judge(result);
        });
        if (!why.ok()) return TookTheDevice(name, why.status());
        if (!why->empty()) broken.try_emplace(name, absl::StrCat(TrialText(trial, form), *why));
      }
    }
  }
  return broken;
}

}  // namespace gemmd::kernels::cuda
