// What each kernel of the pool demands, in one place. Pure; needs no device.

#pragma once

#include <string>

#include "kernels/cuda/sm90/gemm.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Empty when `variant` serves `problem`; else one reason, with value, limit and remedy:
// "k=70: rows of a are 70 bytes apart, not a multiple of 16; pad lda to 80".
std::string WhyNot(const GemmVariant& variant, const MatmulProblem& problem);

// What all kernels that multiply so demand of extents and operands, whatever leaves them.
// `b_along_rows`, `a_along_rows`: they read it along its rows, as it lies.
std::string OperandsWhyNot(Mma mma, const MatmulProblem& problem, bool b_along_rows = false,
                           bool a_along_rows = false);

// The same for problems given by their addresses, where alignment is known exactly. A leading
// dimension is not looked at when there is a single row: nothing is a stride away from it.
// PrepareLaunch is free to replace it by one that TMA takes.
std::string WhyNot(const GemmVariant& variant, const GemmArgs& args);

}  // namespace gemmd::kernels::cuda
