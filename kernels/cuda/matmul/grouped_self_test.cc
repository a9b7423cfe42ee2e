#include "kernels/cuda/matmul/grouped_self_test.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/matmul/grouped_op.h"
#include "kernels/cuda/matmul/self_test_bench.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kAround = 5;  // rows of nobody in front of the groups and behind them
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

}  // namespace

GroupedTrial::GroupedTrial(GroupLayout layout, absl::Span<const int64_t> rows, int64_t n, int64_t k,
                           bool apart) {
  const std::vector<GroupRows> groups = Place(layout, rows);
  const int64_t end = layout == GroupLayout::kCounts ? *absl::c_max_element(rows)
                                                     : groups.back().first + groups.back().rows;
  const GroupedProblem problem{.groups = static_cast<int64_t>(rows.size()),
                               .m = end + kAround,
                               .n = n,
                               .k = k,
                               .layout = layout,
                               .operands = DType::kE4M3,
                               .out = DType::kBF16,
                               .a_granularity = ScaleGranularity::kBlock1x128,
                               .b_granularity = ScaleGranularity::kBlock128x128,
                               .apart = apart};
  op_ = *OpOf(problem);  // of numbers that are good ones
  Fill(NumbersOf(layout, groups, problem.m));
  Expect(groups);
}

void GroupedTrial::Fill(absl::Span<const int32_t> numbers) {
  SelfTestRandom random;
  ForEachTensor(Op(op_), [&](const TensorRef& tensor, Access access) {
    slots_.resize(std::max<size_t>(slots_.size(), tensor.slot + 1));
    std::vector<std::byte>& slot = slots_[tensor.slot];
    if (access == Access::kWrite) {
      slot.assign(BytesOf(tensor) + kGuardBytes, std::byte{0xff});
    } else if (tensor.dtype == DType::kI32) {
      slot.resize(numbers.size() * sizeof(int32_t));
      std::memcpy(slot.data(), numbers.data(), slot.size());
    } else {
      slot = tensor.dtype == DType::kE4M3 ? RandomValues(tensor, random)
                                          : RandomScales(tensor, random);
    }
  });
}

void GroupedTrial::Expect(absl::Span<const GroupRows> groups) {
  Bindings bindings;
  for (std::vector<std::byte>& slot : slots_) bindings.slots.push_back(slot.data());
  expected_.assign(BytesOf(op_.d) / SizeBytes(op_.d.dtype), kUntouched);
  double sum = 0;
  int64_t written = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].rows == 0) continue;
    const MatmulOp matmul = MatmulOf(op_, static_cast<int64_t>(g), groups[g]);
    const std::vector<double> values = ReferenceMatmul(matmul, bindings);
    // d is dense: a group's rows are one run of it.
    std::copy(values.begin(), values.end(),
              expected_.begin() + matmul.d.offset_bytes / SizeBytes(op_.d.dtype));
    for (const double value : values) sum += value * value;
    written += static_cast<int64_t>(values.size());
  }
  rms_ = std::sqrt(sum / static_cast<double>(written));
}

std::string GroupedTrial::Judge(absl::Span<const std::byte> result) const {
  const int64_t bytes = BytesOf(op_.d);
  if (result.size() != slots_[result_slot()].size()) return "its result has another size";
  const auto untouched = [&](int64_t first, int64_t count) {
    return absl::c_all_of(result.subspan(first, count),
                          [](std::byte byte) { return byte == std::byte{0xff}; });
  };
  if (!untouched(bytes, kGuardBytes)) return "it wrote beyond the result";
  std::vector<std::byte> d(result.begin(), result.begin() + bytes);
  TensorRef tensor = op_.d;
  tensor.slot = 0;
  const std::vector<double> values = ReadTensor(tensor, {{d.data()}, {}, {}});
  const int64_t n = tensor.shape[tensor.shape.rank - 1];
  int64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool mine = !std::isnan(expected_[i]);
    const double allowed = mine ? SelfTestAllowed(expected_[i], rms_) : 0;
    if (mine ? std::abs(values[i] - expected_[i]) <= allowed  // false for a NaN
             : untouched(static_cast<int64_t>(2 * i), 2)) {
      continue;
    }
    if (wrong++ > 0) continue;
    first = absl::StrCat("element (", i / n, ", ", i % n, ") is ", values[i],
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
  result[2 * largest + 1] ^= std::byte{0x80};
}

std::vector<GroupedTrial> GroupedTrials() {
  const std::vector<int64_t> mixed = {3, 0, 70, 20}, wide = {130, 65}, thin = {1, 64, 0, 17, 8};
  std::vector<GroupedTrial> trials;
  for (const bool apart : {false, true}) {
    trials.emplace_back(GroupLayout::kOffsets, mixed, 200, 384, apart);
    trials.emplace_back(GroupLayout::kCounts, mixed, 136, 272, apart);
    trials.emplace_back(GroupLayout::kEnds, wide, 264, 256, apart);
    trials.emplace_back(GroupLayout::kRowIds, thin, 256, 528, apart);
  }
  return trials;
}

namespace {

// One problem by one kernel on a bench of its own, whose last slot is the op's scratch memory with
// the fault's place behind it.
absl::StatusOr<std::string> Try(const GroupedTrial& trial, bool fp8, bool spoil,
                                const DeviceTraits& device) {
  constexpr int64_t kFaultBytes = 256;
  const GroupedLayout layout = LayoutOf(trial.op(), fp8);
  std::vector<std::vector<std::byte>> slots(trial.slots().begin(), trial.slots().end());
  slots.emplace_back(layout.scratch_bytes + kFaultBytes, std::byte{0});
  const auto bench = SelfTestBench::Make(slots, trial.result_slot(), device.ordinal);
  if (!bench.ok()) return bench.status();
  std::byte* const scratch = (*bench)->slots().back();
  auto* const fault = reinterpret_cast<DataFault*>(scratch + layout.scratch_bytes);
  // Kept to the end of the run, which may use what it holds.
  const auto launches = PrepareGrouped(trial.op(), layout, (*bench)->slots(), scratch, device);
  absl::Status status = (*bench)->Poison();
  status.Update(launches.status());
  if (status.ok()) status = QueueGrouped(*launches, fault, false, (*bench)->stream());
  if (!status.ok()) {
    cudaGetLastError();
    if (absl::IsUnavailable(status)) return status;
    return absl::StrCat("it cannot be launched: ", status.message());
  }
  const absl::StatusOr<absl::Span<std::byte>> result = (*bench)->Await();
  if (!result.ok()) return result.status();
  if (spoil) trial.Spoil(*result);
  return trial.Judge(*result);
}

std::string Text(const GroupedTrial& trial) {
  const Dims& b = trial.op().b.values.shape;
  return absl::StrCat("groups by ", kernels::Text(Name(trial.op().layout)),
                      trial.op().table.empty() ? "" : ", matrices apart", ", n=", b[1], " k=", b[2],
                      ": ");
}

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenGroupedKernels(
    const GroupedSelfTestOptions& options) {
  absl::flat_hash_map<std::string, std::string> broken;
  if (options.kernels.empty()) return broken;
  for (const GroupedTrial& trial : GroupedTrials()) {
    for (const std::string& name : options.kernels) {
      const bool spoil = absl::c_linear_search(options.spoiled, name);
      const auto why = Try(trial, name == kFp8GroupedName, spoil, options.device);
      if (!why.ok()) {
        return absl::UnavailableError(
            absl::StrCat("the self-test of kernel ", name, " took the device with it (",
                         why.status().message(), "); disable the kernel in the config"));
      }
      if (!why->empty()) broken.try_emplace(name, absl::StrCat(Text(trial), *why));
    }
  }
  return broken;
}

}  // namespace gemmd::kernels::cuda
