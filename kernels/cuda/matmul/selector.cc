#include "kernels/cuda/matmul/selector.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/tuning/model.h"

namespace gemmd::kernels::cuda {
namespace {

// Measured within so much of the fastest, kernels are as fast, and the one that divides k least is
// taken: beside others in a program it leaves them SMs and memory traffic. 64x2112x7168 takes
// 9.3 us alone in three parts and in four, and 7.9 and 9.1 us within a plan.
constexpr double kAsFast = 1.01;

// As gemm_bench measures: one matrix, no C, dense rows of D.
MatmulProblem AsMeasured(MatmulProblem problem, int64_t m) {
  problem.m = m;
  problem.batch = 1;
  problem.has_c = false;
  problem.d.alignment_bytes = problem.n * SizeBytes(problem.d.dtype) % 16 == 0 ? 256 : 1;
  return problem;
}

bool IsExact(const MatmulProblem& problem, const TuningTable::Hit& hit) {
  const bool bulk_stores = problem.d.alignment_bytes % 16 == 0;
  const bool measured_bulk = problem.n * SizeBytes(problem.d.dtype) % 16 == 0;
  return !hit.kernels.empty() && hit.key.m == problem.m && !problem.has_c &&
         (bulk_stores || !measured_bulk);
}

// Each reason once, with the kernels that gave it: there are hundreds of kernels and few reasons.
// If some kernels multiply the operands' type, theirs alone.
std::string Reasons(absl::Span<const RankedVariant> ranked, DType operands) {
  std::map<std::string, std::vector<const RankedVariant*>> by_reason;
  const auto multiplies = [&](const RankedVariant& entry) {
    return KindOf(entry.variant.shape().mma).operand == operands;
  };
  const bool any = absl::c_any_of(ranked, multiplies);
  for (const RankedVariant& entry : ranked) {
    if (!any || multiplies(entry)) by_reason[entry.why_not].push_back(&entry);
  }
  std::string text;
  for (const auto& [reason, entries] : by_reason) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", Name(entries[0]->variant));
    if (entries.size() > 1) absl::StrAppend(&text, " and ", entries.size() - 1, " more");
    absl::StrAppend(&text, ": ", reason);
  }
  return text.empty() ? "none is enabled" : text;
}

}  // namespace

GemmSelector::GemmSelector(DeviceTraits device, std::vector<GemmVariant> enabled, TuningTable table)
    : device_(std::move(device)), enabled_(std::move(enabled)), table_(std::move(table)) {
  for (int i = 0; i < static_cast<int>(enabled_.size()); ++i) by_name_[Name(enabled_[i])] = i;
}

TuningTable::Hit GemmSelector::HitFor(const MatmulProblem& problem) const {
  if (problem.batch != 1) return {};
  return table_.Find({problem.m, problem.n, problem.k, problem.d.dtype, problem.a.dtype});
}

std::optional<GemmPick> GemmSelector::FromHit(const MatmulProblem& problem,
                                              const TuningTable::Hit& hit) const {
  std::optional<GemmPick> pick;
  double fastest = 0;
  for (const TunedKernel& tuned : hit.kernels) {
    const auto found = by_name_.find(tuned.kernel);
    if (found == by_name_.end()) continue;  // another build's kernel, or a disabled one
    const GemmVariant& variant = enabled_[found->second];
    if (!WhyNot(variant, problem).empty()) continue;
    if (!pick.has_value()) fastest = tuned.seconds;
    if (tuned.seconds > kAsFast * fastest) break;
    if (!pick.has_value() || variant.split < pick->variant.split) {
      pick =
          GemmPick{variant, hit.tuned ? ChoiceReason::kTuned : ChoiceReason::kTable, tuned.seconds};
    }
  }
  return pick;
}

std::optional<GemmPick> GemmSelector::FromModel(const MatmulProblem& problem) const {
  // In the order of their rough times: of what follows one that is too long, nothing can be best.
  std::vector<std::pair<double, int>> rough;
  for (int i = 0; i < static_cast<int>(enabled_.size()); ++i) {
    if (KindOf(enabled_[i].shape().mma).operand != problem.a.dtype) continue;
    if (!WhyNot(enabled_[i], problem).empty()) continue;
    rough.emplace_back(RoughSeconds(enabled_[i], problem, device_), i);
  }
  std::sort(rough.begin(), rough.end());
  std::optional<GemmPick> best;
  for (const auto& [rough_seconds, index] : rough) {
    if (best.has_value() && rough_seconds * LeastOfRough() > best->estimated_seconds) break;
    const double seconds = CorrectedSeconds(enabled_[index], problem, device_, rough_seconds);
    if (!best.has_value() || seconds < best->estimated_seconds) {
      best = GemmPick{enabled_[index], ChoiceReason::kModel, seconds};
    }
  }
  return best;
}

absl::StatusOr<GemmPick> GemmSelector::Choose(const MatmulProblem& problem) const {
  if (std::string why = WhyNot(device_); !why.empty()) return absl::UnimplementedError(why);
  const TuningTable::Hit hit = HitFor(problem);
  std::optional<GemmPick> tuned = FromHit(problem, hit);
  if (tuned.has_value() && IsExact(problem, hit)) return *tuned;
  const std::optional<GemmPick> modelled = FromModel(problem);
  if (!modelled.has_value()) {
    return absl::UnimplementedError(absl::StrCat("no TMA kernel serves ", ToString(problem), " (",
                                                 Reasons(Rank(problem), problem.a.dtype), ")"));
  }
  if (!tuned.has_value()) return *modelled;
  const double here = ModelSeconds(tuned->variant, problem, device_);
  if (here > kTrust * modelled->estimated_seconds) return *modelled;
  // By the rates alone, which grow evenly with m; their corrections do so in steps.
  tuned->estimated_seconds *= RoughSeconds(tuned->variant, problem, device_) /
                              RoughSeconds(tuned->variant, AsMeasured(problem, hit.key.m), device_);
  return *tuned;
}

std::vector<RankedVariant> GemmSelector::Rank(const MatmulProblem& problem) const {
  const std::string device = WhyNot(device_);
  std::vector<RankedVariant> ranked;
  ranked.reserve(enabled_.size());
  for (const GemmVariant& variant : enabled_) {
    RankedVariant entry{variant, device.empty() ? WhyNot(variant, problem) : device};
    if (entry.why_not.empty()) entry.modelled_seconds = ModelSeconds(variant, problem, device_);
    ranked.push_back(std::move(entry));
  }
  const TuningTable::Hit hit = HitFor(problem);
  if (IsExact(problem, hit)) {
    for (const TunedKernel& tuned : hit.kernels) {
      const auto found = by_name_.find(tuned.kernel);
      if (found == by_name_.end()) continue;
      RankedVariant& entry = ranked[found->second];
      if (entry.why_not.empty() && entry.measured_seconds == 0) {
        entry.measured_seconds = tuned.seconds;
        entry.tuned = hit.tuned;
      }
    }
  }
  const bool any = std::any_of(ranked.begin(), ranked.end(),
                               [](const RankedVariant& entry) { return entry.why_not.empty(); });
  std::optional<GemmVariant> chosen;
  if (any) chosen = Choose(problem)->variant;
  const auto place = [&](const RankedVariant& entry) {
    if (chosen == entry.variant) return 0;
    if (!entry.why_not.empty()) return 3;
    return entry.measured_seconds > 0 ? 1 : 2;
  };
  const auto seconds = [](const RankedVariant& entry) {
    return entry.measured_seconds > 0 ? entry.measured_seconds : entry.modelled_seconds;
  };
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const RankedVariant& x, const RankedVariant& y) {
                     if (place(x) != place(y)) return place(x) < place(y);
                     return seconds(x) < seconds(y);
                   });
  return ranked;
}

}  // namespace gemmd::kernels::cuda
