#include "kernels/cuda/matmul/pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/tuning/model.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

std::string_view OperandsOf(Mma mma) {
  switch (mma) {
    case Mma::kFp8Block:
      return "E4M3 with 1x128 and 128x128 scales";
    case Mma::kBf16:
      return "BF16";
    case Mma::kF16:
      return "FP16";
    case Mma::kI8:
      return "INT8 with scales by row or tensor, or none";
    case Mma::kI8Block:
      return "INT8 with 1x128 and 128x128 scales";
  }
  return "";
}

std::string Describe(const GemmVariant& variant) {
  const GemmConfig& c = variant.shape();
  std::string text = absl::StrCat(Text(OperandsOf(c.mma)), ", rows of 16 bytes; tile ", c.block_m(),
                                  "x", c.block_n(), ", ", c.stages, " stages");
  if (c.multicast() > 1) absl::StrAppend(&text, ", ", c.multicast(), " CTAs share a side");
  if (variant.split > 1) absl::StrAppend(&text, ", k divided by ", variant.split);
  return text;
}

// One tile of 64 x 64 a CTA, two stages in flight, operands through registers.
double AnyGemmSeconds(const MatmulProblem& problem) {
  constexpr double kTile = 64;
  constexpr double kLaunchSeconds = 4e-6;
  constexpr double kMmaFlops = 120e12;  // mma.sync fed without TMA
  constexpr double kFmaFlops = 20e12;
  constexpr double kBytesPerSecond = 1.5e12;
  constexpr double kStageSeconds = 0.7e-6;  // a stage of 128 bytes of k waits for memory
  constexpr double kCtas = 132 * 4.0;       // at work at once
  const double tiles = std::ceil(problem.m / kTile) * std::ceil(problem.n / kTile) * problem.batch;
  const double flops = 2 * tiles * kTile * kTile * problem.k;
  const double rate = problem.a.dtype == DType::kF32 ? kFmaFlops : kMmaFlops;
  const double stages = std::ceil(problem.k * SizeBytes(problem.a.dtype) / 128.0);
  const double waves = std::max(1.0, std::ceil(tiles / kCtas));
  return kLaunchSeconds + std::max({flops / rate, problem.bytes() / kBytesPerSecond,
                                    waves * stages * kStageSeconds});
}

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

OtherKernel AnyGemmKernel(decltype(OtherKernel::launch) launch) {
  return {.info = {kAnyGemmName, kAnyGemmName, "any type, shape, stride and scales; slow"},
          .why_not = [](const MatmulProblem&) { return std::string(); },
          .seconds = AnyGemmSeconds,
          .launch = launch};
}

GemmPool::GemmPool(GemmPoolOptions options) : options_(std::move(options)) {
  for (const GemmVariant& variant : AllVariants()) {
    AddMember({Name(variant), variant.entry().name, Describe(variant)}, {.variant = variant});
    if (members_.back().off.empty()) enabled_.push_back(variant);
  }
  for (int i = 0; i < static_cast<int>(options_.others.size()); ++i) {
    AddMember(options_.others[i].info, {.other = i});
  }
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

void GemmPool::AddMember(KernelInfo info, Member member) {
  for (const std::string& key : {info.name, info.family}) {
    const auto found = options_.disabled.find(key);
    if (found == options_.disabled.end()) continue;
    member.off = absl::StrCat("it is disabled on this device: ", found->second);
    break;
  }
  const auto failed = options_.quarantined.find(info.name);
  if (member.off.empty() && failed != options_.quarantined.end()) {
    member.off = absl::StrCat("it is quarantined on this device, for its self-test failed: ",
                              failed->second);
    info.quarantined = true;
  }
  info.why_off = member.off;
  infos_.push_back(std::move(info));
  members_.push_back(std::move(member));
}

std::string GemmPool::WhyNotMember(const Member& member, const MatmulProblem& problem) const {
  if (!member.off.empty()) return member.off;
  if (!member.variant.has_value()) return options_.others[member.other].why_not(problem);
  std::string why = WhyNot(options_.device);
  return why.empty() ? WhyNot(*member.variant, problem) : why;
}

double GemmPool::Seconds(const Member& member, const MatmulProblem& problem) const {
  if (!member.variant.has_value()) return options_.others[member.other].seconds(problem);
  return ModelSeconds(*member.variant, problem, options_.device);
}

PoolPick GemmPool::PickOf(int index, ChoiceReason reason, double seconds) const {
  return {members_[index].variant, members_[index].other, {infos_[index].name, reason, seconds}};
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
  std::string why = WhyNotMember(member, problem);
  if (!why.empty()) {
    return absl::UnimplementedError(absl::StrCat("kernel ", Text(forced), " cannot serve ",
                                                 ToString(problem), ": ", why,
                                                 "; leave kernel empty to let the device choose"));
  }
  return PickOf(found->second, ChoiceReason::kForced, Seconds(member, problem));
}

absl::StatusOr<PoolPick> GemmPool::ChooseBest(const GemmSelector& selector,
                                              const MatmulProblem& problem) const {
  const absl::StatusOr<GemmPick> gemm = selector.Choose(problem);
  if (gemm.ok()) {
    return PickOf(by_name_.at(Name(gemm->variant)), gemm->reason, gemm->estimated_seconds);
  }
  return ChooseOther(problem, std::string(gemm.status().message()));
}

absl::StatusOr<PoolPick> GemmPool::ChooseOther(const MatmulProblem& problem,
                                               std::string why_not) const {
  int best = -1;
  double best_seconds = 0;
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    const Member& member = members_[i];
    if (member.variant.has_value() || options_.others[member.other].by_name) continue;
    if (std::string why = WhyNotMember(member, problem); !why.empty()) {
      absl::StrAppend(&why_not, "; ", infos_[i].name, ": ", why);
      continue;
    }
    const double seconds = Seconds(member, problem);
    if (best >= 0 && seconds >= best_seconds) continue;
    best = i;
    best_seconds = seconds;
  }
  if (best < 0) return absl::UnimplementedError(why_not);
  return PickOf(best, ChoiceReason::kFallback, best_seconds);
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
  for (const RankedVariant& entry : ranks->Rank(problem)) {
    const int index = by_name_.at(Name(entry.variant));
    ranked[index] = true;
    candidates.push_back({infos_[index].name, entry.why_not.empty(), entry.why_not,
                          entry.modelled_seconds, entry.measured_seconds, entry.tuned});
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    if (ranked[i]) continue;
    Candidate candidate;
    candidate.kernel = infos_[i].name;
    candidate.why_not = WhyNotMember(members_[i], problem);
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
    const int other = members_[by_name_.at(candidate.kernel)].other;
    if (other >= 0 && options_.others[other].by_name) {
      candidate.why_not = "it serves whoever names it, and is never chosen";
    } else if (other >= 0 && pick->variant.has_value()) {
      candidate.why_not = "it serves what the TMA families cannot";
    } else {
      candidate.why_not = WhyLost(candidate, candidates[0], pick->choice.reason);
    }
  }
  return candidates;
}

}  // namespace gemmd::kernels::cuda
