// Problem -> kernel. The tuning table's entry, else the cost model's best. Pure; explains itself.
//
// A problem with a batch has no entry. One that the table measured with another m, or without C, or
// with rows of D that could be stored in bulk, takes the entry's kernel only where the model does
// not object, and the measured time scaled by what the model says of the two problems.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/tuning/tuning_table.h"
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
  bool tuned = false;           // TuningTable::Hit::tuned, of measured_seconds
};

class GemmSelector {
 public:
  // A table's kernel whose modelled time is more than this many times the model's best is not
  // taken for a problem beside the measured one.
  static constexpr double kTrust = 1.25;

  // `enabled` is the pool (AllVariants() or fewer); `table` may be empty.
  GemmSelector(DeviceTraits device, std::vector<GemmVariant> enabled, TuningTable table);

  // UNIMPLEMENTED, with each candidate's reason, when no enabled variant can serve `problem`.
  absl::StatusOr<GemmPick> Choose(const MatmulProblem& problem) const;

  // Every enabled variant: Choose's pick, then by measured and by modelled time, those that cannot
  // serve last.
  std::vector<RankedVariant> Rank(const MatmulProblem& problem) const;

 private:
  std::optional<GemmPick> FromModel(const MatmulProblem& problem) const;
  // The hit's fastest enabled kernel that can serve, with its measured time.
  std::optional<GemmPick> FromHit(const MatmulProblem& problem, const TuningTable::Hit& hit) const;
  TuningTable::Hit HitFor(const MatmulProblem& problem) const;

  DeviceTraits device_;
  std::vector<GemmVariant> enabled_;
  absl::flat_hash_map<std::string, int> by_name_;  // index into enabled_
  TuningTable table_;
};

}  // namespace gemmd::kernels::cuda
