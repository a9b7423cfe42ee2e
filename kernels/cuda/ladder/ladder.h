// The ladder's kernels as members of the pool that serve by name alone: nobody is better off with
// one, but each is there to be run, checked and measured beside its neighbours.
//
//   options.families.push_back(std::make_shared<PlainFamily>(LadderKernels()));

#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/ladder/rung.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

inline constexpr char kLadderFamily[] = "sm90_ladder";

// Step 1 first, kRungs' order.
std::vector<PlainKernel> LadderKernels();

namespace ladder {

// Empty when `rung` takes `problem`; else one cause, with value, limit and remedy.
std::string WhyNot(const Rung& rung, const MatmulProblem& problem);

}  // namespace ladder
}  // namespace gemmd::kernels::cuda
