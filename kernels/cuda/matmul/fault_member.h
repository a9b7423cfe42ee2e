// kFaultName as a member of the pool.

#pragma once

#include <string>

#include "kernels/cuda/matmul/fault_kernel.h"
#include "kernels/cuda/matmul/plain_family.h"

namespace gemmd::kernels::cuda {

// For one row and no more, so that the self-test leaves it alone; never chosen, only named.
inline PlainKernel FaultKernel() {
  return {.info = {kFaultName, kFaultName, "faults on purpose; for m=1, when named"},
          .why_not =
              [](const MatmulProblem& problem) {
                return std::string(problem.m == 1 ? "" : "it faults for m=1 only");
              },
          .seconds = [](const MatmulProblem&) { return 1.0; },
          .launch = LaunchFault,
          .standing = Standing::kByName};
}

}  // namespace gemmd::kernels::cuda
