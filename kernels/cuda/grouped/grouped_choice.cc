#include "kernels/cuda/grouped/grouped_choice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/grouped/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

Candidate CandidateOf(const GroupedMatmulOp& op, const KernelInfo& kernel, bool by_tma, bool fused,
                      double memory_bytes_per_s) {
  Candidate candidate{.kernel = kernel.name, .why_not = kernel.why_off};
  if (candidate.why_not.empty() && fused) candidate.why_not = WhyNotFp8(op);
  if (candidate.why_not.empty() && by_tma) candidate.why_not = WhyNotTma(op);
  if (candidate.why_not.empty() && fused) candidate.why_not = WhyNotFused(op);
  if (candidate.why_not.empty()) {
    const int64_t scratch = LayoutOf(op, by_tma, fused).scratch_bytes;
    if (scratch > kMaxScratchBytes) {
      candidate.why_not = absl::StrCat("it takes ", scratch, " bytes of scratch memory, limit ",
                                       kMaxScratchBytes, "; split it");
    }
  }
  candidate.feasible = candidate.why_not.empty();
  if (candidate.feasible) {
    candidate.modelled_seconds = GroupedSeconds(op, by_tma, memory_bytes_per_s, fused);
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> RankGrouped(const GroupedMatmulOp& op, const KernelInfo& tma,
                                   const KernelInfo& any, const KernelInfo& gate,
                                   double memory_bytes_per_s) {
  std::vector<Candidate> ranked;
  if (op.gate) ranked.push_back(CandidateOf(op, gate, true, true, memory_bytes_per_s));
  ranked.push_back(CandidateOf(op, tma, true, false, memory_bytes_per_s));
  ranked.push_back(CandidateOf(op, any, false, false, memory_bytes_per_s));
  // Those that apply the gate give way to the product and a gate behind it where that is quicker.
  if (op.gate && ranked[0].feasible && ranked[1].feasible &&
      ranked[1].modelled_seconds < ranked[0].modelled_seconds) {
    std::swap(ranked[0], ranked[1]);
  }
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
