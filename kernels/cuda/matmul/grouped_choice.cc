#include "kernels/cuda/matmul/grouped_choice.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

Candidate CandidateOf(const GroupedMatmulOp& op, const KernelInfo& kernel, bool fp8,
                      double memory_bytes_per_s) {
  Candidate candidate{.kernel = kernel.name, .why_not = kernel.why_off};
  if (candidate.why_not.empty() && fp8) candidate.why_not = WhyNotFp8(op);
  if (candidate.why_not.empty()) {
    const int64_t scratch = LayoutOf(op, fp8).scratch_bytes;
    if (scratch > kMaxScratchBytes) {
      candidate.why_not = absl::StrCat("it takes ", scratch, " bytes of scratch memory, limit ",
                                       kMaxScratchBytes, "; split it");
    }
  }
  candidate.feasible = candidate.why_not.empty();
  if (candidate.feasible) {
    candidate.modelled_seconds = GroupedSeconds(op, fp8, memory_bytes_per_s);
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> RankGrouped(const GroupedMatmulOp& op, const KernelInfo& fp8,
                                   const KernelInfo& any, double memory_bytes_per_s) {
  std::vector<Candidate> ranked = {CandidateOf(op, fp8, true, memory_bytes_per_s),
                                   CandidateOf(op, any, false, memory_bytes_per_s)};
  std::stable_partition(ranked.begin(), ranked.end(),
                        [](const Candidate& c) { return c.feasible; });
  Candidate& best = ranked.front();
  best.chosen = best.feasible;
  for (Candidate& other : ranked) {
    if (&other == &best || !other.feasible) continue;
    other.why_not = absl::StrCat((other.modelled_seconds - best.modelled_seconds) * 1e6,
                                 " us slower by the model");
  }
  return ranked;
}

}  // namespace gemmd::kernels::cuda
