// How the CTAs of a cluster divide k, and where each takes in the others' sums.

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90/gemm_family.h"

namespace gemmd::kernels::cuda {

// `parts` of the `stages` that k takes, for a config that `splits(parts)`; stages >= parts.
KSplit SplitOf(const GemmConfig& shape, int parts, int64_t stages);

}  // namespace gemmd::kernels::cuda
