// Selector: problem -> kernel, by the kernels' own cost models. A pure function of the problem, the
// pool and the machine; Compile and Explain both ask it.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/model.h"
#include "kernels/kernel.h"

namespace gemmd::kernels::cpu {

struct PoolEntry {
  const MatmulKernel* kernel = nullptr;
  std::string_view name;  // the backend's KernelInfo::name
  bool enabled = true;
};

struct Selection {
  const MatmulKernel* kernel = nullptr;
  KernelChoice choice;
};

// Every kernel of the pool, fastest by the model first, infeasible ones last; the first feasible
// one is chosen.
std::vector<Candidate> Rank(const MatmulProblem& problem, absl::Span<const PoolEntry> pool,
                            const Machine& machine);

// The best kernel, or `forced` unless that is empty. NOT_FOUND when no kernel is called `forced`,
// UNIMPLEMENTED when it, or every kernel, cannot serve; the message has each one's reason.
absl::StatusOr<Selection> Select(const MatmulProblem& problem, std::string_view forced,
                                 absl::Span<const PoolEntry> pool, const Machine& machine);

}  // namespace gemmd::kernels::cpu
