#include "kernels/cuda/matmul/pool_tuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/shape_trial.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

// The first of Explain's order, which are the chosen one and what a table says is nearly as good.
constexpr size_t kRankedFirst = 3;
constexpr double kMostSeconds = 1000;

TuningKey KeyOf(const TuneShape& shape) { return {shape.m, shape.n, shape.k, shape.out}; }

absl::Status CheckTime(const TuneShape& shape, const KernelTime& time) {
  if (!FindVariant(time.kernel).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no kernel that can be tuned is called \"",
                     absl::CHexEscape(Text(time.kernel).substr(0, 64)), "\""));
  }
  if (std::isfinite(time.seconds) && time.seconds > 0 && time.seconds <= kMostSeconds) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(time.kernel, " took ", time.seconds, " s for ",
                                                 ToString(shape),
                                                 ", which is no time above 0 and "
                                                 "at most ",
                                                 kMostSeconds, " s; measure again"));
}

}  // namespace

PoolTuner::PoolTuner(GemmPool& pool, DeviceTraits device, std::string driver, Hooks hooks)
    : pool_(pool),
      device_(std::move(device)),
      driver_(std::move(driver)),
      hooks_(std::move(hooks)) {}

absl::StatusOr<KernelChoice> PoolTuner::Current(const TuneShape& shape) const {
  const MatmulProblem problem = ProblemOf(TrialMatmul(shape));
  const absl::StatusOr<PoolPick> pick = pool_.Choose(problem);
  if (!pick.ok()) return pick.status();
  if (pool_.tunable(pick->member) && LiesAsMeasured(problem)) return pick->choice;
  return absl::UnimplementedError(
      absl::StrCat(ToString(shape), " is served by ", Text(pick->choice.kernel),
                   "; what is measured takes n and k that are multiples of 16"));
}

absl::StatusOr<std::vector<std::string>> PoolTuner::Contenders(const TuneShape& shape,
                                                               int most) const {
  absl::StatusOr<KernelChoice> current = Current(shape);
  if (!current.ok()) return current.status();
  std::vector<Candidate> candidates = pool_.Explain(ProblemOf(TrialMatmul(shape)));
  std::erase_if(candidates, [](const Candidate& candidate) {
    return !candidate.feasible || !FindVariant(candidate.kernel).has_value();
  });
  const auto rest =
      candidates.begin() + static_cast<std::ptrdiff_t>(std::min(kRankedFirst, candidates.size()));
  std::stable_sort(rest, candidates.end(), [](const Candidate& x, const Candidate& y) {
    return x.modelled_seconds < y.modelled_seconds;
  });
  std::vector<std::string> kernels;
  for (const Candidate& candidate : candidates) {
    if (static_cast<int>(kernels.size()) >= most) break;
    kernels.emplace_back(candidate.kernel);
  }
  return kernels;
}

int64_t PoolTuner::flush_bytes() const {
  constexpr int64_t kLeast = 64 << 20;
  return std::max(2 * device_.l2_bytes, kLeast) / 256 * 256;
}

absl::StatusOr<std::shared_ptr<const Program>> PoolTuner::CompileTrial(absl::Span<const Op> ops) {
  return hooks_.compile(ops);
}

void PoolTuner::Change(TuningTable table) {
  table_ = std::move(table);
  pool_.SetTuned(table_);
  hooks_.changed();
  generation_.fetch_add(1, std::memory_order_release);
}

absl::Status PoolTuner::Keep(absl::Span<const ShapeTimes> measured) {
  absl::MutexLock lock(&mutex_);
  TuningTable table = table_;
  for (const ShapeTimes& entry : measured) {
    if (absl::Status valid = CheckTuneShape(entry.shape); !valid.ok()) return valid;
    std::vector<TunedKernel> kernels;
    for (const KernelTime& time : entry.times) {
      if (absl::Status valid = CheckTime(entry.shape, time); !valid.ok()) return valid;
      kernels.push_back({time.kernel, time.seconds});
    }
    table.Set(KeyOf(entry.shape), std::move(kernels));
  }
  if (table.size() > kMostShapes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the times of ", table.size(), " shapes would be kept, limit ", kMostShapes,
                     "; remove the device's tuning file and start again"));
  }
  Change(std::move(table));
  return absl::OkStatus();
}

int PoolTuner::kept_shapes() const {
  absl::MutexLock lock(&mutex_);
  return table_.size();
}

std::string PoolTuner::Export(std::string_view date) const {
  absl::MutexLock lock(&mutex_);
  return table_.Serialize(device_.model, driver_, date);
}

absl::StatusOr<TuningImport> PoolTuner::Import(std::string_view text) {
  absl::StatusOr<TuningTable> read = TuningTable::Parse(text, device_.model);
  if (!read.ok()) return read.status();
  TuningImport result{.skipped = read->stale()};
  if (const int unknown = read->DropUnknown(); unknown > 0) {
    absl::StrAppend(&result.skipped, result.skipped.empty() ? "" : "; ", unknown,
                    " times of kernels that this build lacks");
  }
  result.shapes = read->size();
  absl::MutexLock lock(&mutex_);
  TuningTable merged = TuningTable::Merge(table_, *read);
  if (merged.size() > kMostShapes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the table has ", read->size(), " shapes beside ", table_.size(),
                     " that are kept, limit ", kMostShapes, " in all; import a smaller one"));
  }
  if (result.shapes > 0) Change(std::move(merged));
  return result;
}

}  // namespace gemmd::kernels::cuda
