#include "kernels/cuda/matmul/pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/matmul/gate_behind.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

// Of two that differ by less, models and measurements do not tell which is quicker.
constexpr double kClearly = 0.9;

std::string Microseconds(double seconds) { return absl::StrFormat("%.1f us", seconds * 1e6); }

// Why a kernel that could serve was not taken.
std::string WhyLost(const Candidate& loser, const Candidate& winner, ChoiceReason reason) {
  const bool measured = reason == ChoiceReason::kTable || reason == ChoiceReason::kTuned;
  if (measured && winner.measured_seconds > 0) {
    if (loser.measured_seconds == 0) return "the tuning table ranks others for this shape";
    const double slower = loser.measured_seconds - winner.measured_seconds;
    if (slower < 0) return "measured as fast, within a hundredth, but it divides k further";
    return absl::StrCat(Microseconds(slower), " slower as measured");
  }
  const double behind = loser.modelled_seconds - winner.modelled_seconds;
  if (behind >= 0) return absl::StrCat(Microseconds(behind), " slower by the model");
  return absl::StrCat("measured slower near this shape, though ", Microseconds(-behind),
                      " faster by the model");
}

}  // namespace

GemmPool::GemmPool(GemmPoolOptions options)
    : options_(std::move(options)),
      tma_(std::make_unique<TmaFamily>(options_.device, options_.memory_bytes_per_s,
                                       options_.prepare_tma)) {
  AddFamily(*tma_);
  for (const GemmVariant& variant : AllVariants()) {
    if (members_[IndexOf(variant)].off.empty()) enabled_.push_back(variant);
  }
  for (const auto& family : options_.families) AddFamily(*family);
  for (int i = 0; i < static_cast<int>(infos_.size()); ++i) by_name_[infos_[i].name] = i;
  const auto shipped =
      std::make_shared<const GemmSelector>(options_.device, enabled_, options_.table);
  selectors_ = {shipped, shipped};
}

void GemmPool::SetTuned(const TuningTable& tuned) {
  TuningTable table = options_.table;
  table.Overlay(tuned);
  auto selector = std::make_shared<const GemmSelector>(options_.device, enabled_, std::move(table));
  absl::MutexLock lock(&mutex_);
  selectors_[static_cast<size_t>(By::kTuned)] = std::move(selector);
  remembered_[static_cast<size_t>(By::kTuned)].clear();
}

std::shared_ptr<const GemmSelector> GemmPool::selector(By by) const {
  absl::MutexLock lock(&mutex_);
  return selectors_[static_cast<size_t>(by)];
}

void GemmPool::AddFamily(const MatmulFamily& family) {
  int index = 0;
  for (KernelInfo info : family.members()) {
    std::string off;
    for (const std::string& key : {info.name, info.family}) {
      const auto found = options_.disabled.find(key);
      if (found == options_.disabled.end()) continue;
      off = absl::StrCat("it is disabled on this device: ", found->second);
      break;
    }
    const auto failed = options_.quarantined.find(info.name);
    if (off.empty() && failed != options_.quarantined.end()) {
      off = absl::StrCat("it is quarantined on this device, for its self-test failed: ",
                         failed->second);
      info.quarantined = true;
    }
    info.why_off = off;
    infos_.push_back(std::move(info));
    members_.push_back({&family, index++, std::move(off)});
  }
}

std::string GemmPool::WhyNot(const Member& member, const MatmulProblem& problem) const {
  if (!member.off.empty()) return member.off;
  if (!PutsGateBehind(*member.family, problem)) {
    return member.family->WhyNot(member.index, problem);
  }
  std::string why = member.family->WhyNot(member.index, ProductOf(problem));
  return why.empty() ? ApartWhyNot(problem) : why;
}

double GemmPool::GateSeconds(const MatmulProblem& problem) const {
  if (problem.gate_period == 0) return 0;
  // Of a GELU and a quantisation an H200 does 7.9e11 elements a second, by the instructions; memory
  // would let it do more.
  constexpr double kActivatedPerSecond = 7.9e11;
  const double elements = 1.0 * problem.batch * problem.m * problem.d_cols();
  const double seconds =
      StreamSeconds(static_cast<double>(ProductBytes(problem)) +
                        elements * static_cast<double>(SizeBytes(problem.d.dtype)),
                    options_.memory_bytes_per_s);
  const double started = StreamSeconds(0, options_.memory_bytes_per_s);
  return problem.gate_alone ? std::max(seconds, started + elements / kActivatedPerSecond) : seconds;
}

double GemmPool::Seconds(const Member& member, const MatmulProblem& problem) const {
  if (!PutsGateBehind(*member.family, problem)) {
    return member.family->Seconds(member.index, problem);
  }
  return member.family->Seconds(member.index, ProductOf(problem)) + GateSeconds(problem);
}

int64_t GemmPool::ScratchBytes(int member, const MatmulProblem& problem) const {
  const auto& [family, index, off] = members_[member];
  if (!PutsGateBehind(*family, problem)) return family->ScratchBytes(index, problem);
  return ProductOffset(family->ScratchBytes(index, ProductOf(problem))) + ProductBytes(problem);
}

PoolPick GemmPool::PickOf(int member, ChoiceReason reason, double seconds) const {
  return {member, {infos_[member].name, reason, seconds}};
}

absl::StatusOr<PoolPick> GemmPool::ChooseForced(const MatmulProblem& problem,
                                                std::string_view forced) const {
  const auto found = by_name_.find(forced);
  if (found == by_name_.end()) {
    return absl::NotFoundError(absl::StrCat("no matmul kernel is called \"", Text(forced),
                                            "\" on this device; list the device's kernels, or "
                                            "leave kernel empty to let it choose"));
  }
  const Member& member = members_[found->second];
  if (std::string why = WhyNot(member, problem); !why.empty()) {
    return absl::UnimplementedError(absl::StrCat("kernel ", Text(forced), " cannot serve ",
                                                 ToString(problem), ": ", why,
                                                 "; leave kernel empty to let the device choose"));
  }
  return PickOf(found->second, ChoiceReason::kForced, Seconds(member, problem));
}

std::optional<PoolPick> GemmPool::Quickest(Standing standing, const MatmulProblem& problem,
                                           std::string& reasons) const {
  std::optional<PoolPick> best;
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    const Member& member = members_[i];
    if (tunable(i) || member.family->standing(member.index) != standing) continue;
    if (std::string why = WhyNot(member, problem); !why.empty()) {
      absl::StrAppend(&reasons, "; ", infos_[i].name, ": ", why);
      continue;
    }
    const double seconds = Seconds(member, problem);
    if (best && seconds >= best->choice.estimated_seconds) continue;
    best =
        PickOf(i, standing == Standing::kContends ? ChoiceReason::kModel : ChoiceReason::kFallback,
               seconds);
  }
  return best;
}

absl::StatusOr<PoolPick> GemmPool::ChooseBest(const GemmSelector& selector,
                                              const MatmulProblem& problem) const {
  std::string reasons;
  std::optional<PoolPick> other = Quickest(Standing::kContends, problem, reasons);
  absl::StatusOr<GemmPick> gemm =
      selector.Choose(Readable(problem.gate_period > 0 ? ProductOf(problem) : problem));
  if (gemm.ok()) {
    if (std::string why = WhyNot(members_[IndexOf(gemm->variant)], problem); !why.empty()) {
      gemm = absl::UnimplementedError(why);
    }
  }
  if (gemm.ok()) {
    if (std::string why = ApartWhyNot(problem); !why.empty()) gemm = absl::UnimplementedError(why);
  }
  if (gemm.ok()) {
    // Small operands are sooner multiplied as they lie than copied.
    const double misaligned = MisalignedSeconds(problem, options_.memory_bytes_per_s);
    if (misaligned > 0 && !other) other = Quickest(Standing::kLastResort, problem, reasons);
    const double seconds = gemm->estimated_seconds + misaligned + GateSeconds(problem);
    const bool rival_gates = other && members_[other->member].family->gates();
    if (!other || seconds <= (rival_gates ? kClearly : 1.0) * other->choice.estimated_seconds) {
      return PickOf(IndexOf(gemm->variant), gemm->reason, seconds);
    }
  }
  if (other) return *other;
  reasons = absl::StrCat(std::string(gemm.status().message()), reasons);
  other = Quickest(Standing::kLastResort, problem, reasons);
  if (other) return *other;
  return absl::UnimplementedError(reasons);
}

absl::StatusOr<PoolPick> GemmPool::Choose(const MatmulProblem& problem, std::string_view forced,
                                          By by) const {
  if (!forced.empty()) return ChooseForced(problem, forced);
  const auto index = static_cast<size_t>(by);
  std::shared_ptr<const GemmSelector> selector;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = remembered_[index].find(problem); found != remembered_[index].end()) {
      return found->second;
    }
    selector = selectors_[index];
  }
  // Two threads may both come here with one problem: they find the same answer.
  const absl::StatusOr<PoolPick> pick = ChooseBest(*selector, problem);
  if (!pick.ok()) return pick;
  absl::MutexLock lock(&mutex_);
  if (selector != selectors_[index]) return pick;  // of a table that is replaced since
  if (remembered_[index].size() >= kMaxRemembered) remembered_[index].clear();
  remembered_[index].insert_or_assign(problem, *pick);
  return pick;
}

std::vector<Candidate> GemmPool::Explain(const MatmulProblem& problem) const {
  std::vector<Candidate> candidates;
  candidates.reserve(members_.size());
  std::vector<bool> ranked(members_.size(), false);
  const std::shared_ptr<const GemmSelector> ranks = selector(By::kTuned);
  const std::string apart = ApartWhyNot(problem);
  const double around =
      GateSeconds(problem) + MisalignedSeconds(problem, options_.memory_bytes_per_s);
  for (const RankedVariant& entry :
       ranks->Rank(Readable(problem.gate_period > 0 ? ProductOf(problem) : problem))) {
    const int index = IndexOf(entry.variant);
    ranked[index] = true;
    Candidate candidate{.kernel = infos_[index].name, .why_not = entry.why_not};
    if (candidate.why_not.empty()) candidate.why_not = apart;
    if (candidate.why_not.empty()) candidate.why_not = WhyNot(members_[index], problem);
    candidate.feasible = candidate.why_not.empty();
    if (candidate.feasible) {
      candidate.modelled_seconds = entry.modelled_seconds + around;
      if (entry.measured_seconds > 0) candidate.measured_seconds = entry.measured_seconds + around;
      candidate.tuned = entry.tuned;
    }
    candidates.push_back(std::move(candidate));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    if (ranked[i]) continue;
    Candidate candidate;
    candidate.kernel = infos_[i].name;
    candidate.why_not = WhyNot(members_[i], problem);
    candidate.feasible = candidate.why_not.empty();
    if (candidate.feasible) candidate.modelled_seconds = Seconds(members_[i], problem);
    candidates.push_back(std::move(candidate));
  }
  const absl::StatusOr<PoolPick> pick = Choose(problem);
  if (pick.ok()) {
    for (Candidate& candidate : candidates) {
      candidate.chosen = candidate.kernel == pick->choice.kernel;
    }
  }
  // Others that could serve follow the families: stable, so that both keep their own order.
  const auto place = [](const Candidate& candidate) {
    return candidate.chosen ? 0 : candidate.feasible ? 1 : 2;
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& x, const Candidate& y) { return place(x) < place(y); });
  if (!pick.ok()) return candidates;
  for (Candidate& candidate : candidates) {
    if (candidate.chosen || !candidate.feasible) continue;
    const Member& member = members_[by_name_.at(candidate.kernel)];
    const Standing standing = member.family->standing(member.index);
    if (standing == Standing::kByName) {
      candidate.why_not = "it serves whoever names it, and is never chosen";
    } else if (standing == Standing::kLastResort) {
      candidate.why_not =
          "it serves what no other kernel can, and what is too small to be copied for one";
    } else {
      candidate.why_not = WhyLost(candidate, candidates[0], pick->choice.reason);
    }
  }
  return candidates;
}

}  // namespace gemmd::kernels::cuda
