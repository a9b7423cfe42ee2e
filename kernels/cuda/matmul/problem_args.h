// A MatmulProblem as a kernel's arguments would give it, were its memory there.

#pragma once

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Extents, types and strides. Of the addresses only the alignment means something; those of what
// the problem lacks are null. alpha and beta are 0 or 1. Scales that the problem says nothing of
// lie as the TMA kernels take them: A's, and B's of 1x128, along the rows, B's of 128x128 along k.
AnyGemmArgs UnplacedArgs(const MatmulProblem& problem);

}  // namespace gemmd::kernels::cuda
