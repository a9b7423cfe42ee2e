// Problem -> kernel. The tuning table's entry, else the cost model's best. Pure; explains itself.

#ifndef GEMMD_KERNELS_CUDA_SELECTOR_H_
#define GEMMD_KERNELS_CUDA_SELECTOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tuning_table.h"
#include "kernels/kernel.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

struct GemmPick {
  GemmVariant variant;
  ChoiceReason reason = ChoiceReason::kModel;
  double estimated_seconds = 0;
};

struct RankedVariant {
  GemmVariant variant;
  std::string why_not;          // empty when it can serve
  double modelled_seconds = 0;  // 0 when it cannot
  double measured_seconds = 0;  // 0 when the table has no entry
};

class GemmSelector {
 public:
  // `enabled` is the pool (AllVariants() or fewer); `table` may be empty.
  GemmSelector(DeviceTraits device, std::vector<GemmVariant> enabled, TuningTable table);

  // UNIMPLEMENTED, with each candidate's reason, when no enabled variant can serve `problem`.
  absl::StatusOr<GemmPick> Choose(const MatmulProblem& problem) const;

  // Every enabled variant, best first, those that cannot serve last.
  std::vector<RankedVariant> Rank(const MatmulProblem& problem) const;

 private:
  DeviceTraits device_;
  std::vector<GemmVariant> enabled_;
  TuningTable table_;
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SELECTOR_H_
