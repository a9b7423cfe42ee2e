#include "kernels/cpu/matmul/selector.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

Candidate Consider(const MatmulProblem& problem, const PoolEntry& entry, const Machine& machine) {
  Candidate candidate;
  candidate.kernel = entry.name;
  candidate.why_not =
      entry.enabled ? entry.kernel->why_not(problem) : "it is disabled on this device";
  candidate.feasible = candidate.why_not.empty();
  // The models divide by extents.
  const bool empty = problem.batch == 0 || problem.m == 0 || problem.n == 0;
  if (candidate.feasible && !empty) {
    candidate.modelled_seconds = entry.kernel->seconds(problem, machine);
  }
  return candidate;
}

absl::StatusOr<Selection> SelectForced(const MatmulProblem& problem, std::string_view forced,
                                       absl::Span<const PoolEntry> pool, const Machine& machine) {
  for (const PoolEntry& entry : pool) {
    if (entry.name != forced) continue;
    const Candidate candidate = Consider(problem, entry, machine);
    if (!candidate.feasible) {
      return absl::UnimplementedError(
          absl::StrCat("kernel ", Text(forced), " cannot serve ", ToString(problem), ": ",
                       candidate.why_not, "; leave kernel empty to let the device choose"));
    }
    return Selection{entry.kernel, {entry.name, ChoiceReason::kForced, candidate.modelled_seconds}};
  }
  const std::string names = absl::StrJoin(
      pool, ", ", [](std::string* out, const PoolEntry& e) { absl::StrAppend(out, Text(e.name)); });
  return absl::NotFoundError(absl::StrCat("no matmul kernel is called \"", Text(forced),
                                          "\" on this device; use one of ", names));
}

}  // namespace

std::vector<Candidate> Rank(const MatmulProblem& problem, absl::Span<const PoolEntry> pool,
                            const Machine& machine) {
  std::vector<Candidate> candidates;
  candidates.reserve(pool.size());
  for (const PoolEntry& entry : pool) candidates.push_back(Consider(problem, entry, machine));
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
    if (x.feasible != y.feasible) return x.feasible;
    if (x.modelled_seconds != y.modelled_seconds) return x.modelled_seconds < y.modelled_seconds;
    return x.kernel < y.kernel;  // a total order: the same answer on every run
  });
  if (!candidates.empty()) candidates[0].chosen = candidates[0].feasible;
  return candidates;
}

absl::StatusOr<Selection> Select(const MatmulProblem& problem, std::string_view forced,
                                 absl::Span<const PoolEntry> pool, const Machine& machine) {
  if (!forced.empty()) return SelectForced(problem, forced, pool, machine);
  const std::vector<Candidate> candidates = Rank(problem, pool, machine);
  for (const PoolEntry& entry : pool) {
    if (candidates[0].chosen && entry.name == candidates[0].kernel) {
      return Selection{entry.kernel,
                       {entry.name, ChoiceReason::kModel, candidates[0].modelled_seconds}};
    }
  }
  const std::string reasons =
      absl::StrJoin(candidates, "; ", [](std::string* out, const Candidate& candidate) {
        absl::StrAppend(out, Text(candidate.kernel), ": ", candidate.why_not);
      });
  return absl::UnimplementedError(
      absl::StrCat("no kernel serves ", ToString(problem), " (", reasons, ")"));
}

}  // namespace gemmd::kernels::cpu
