// Which kernel serves a grouped matmul, told: what each lacks, or by how much it loses.

#pragma once

#include <vector>

#include "kernels/kernel.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// `tma`: the TMA kernels of the op's type (TmaGroupedName), `any`: the one that takes anything,
// `gate`: the TMA kernels that apply a gate, told of for ops that have one. They outlive the
// answer, which points at their names. Best first, the first feasible one chosen.
std::vector<Candidate> RankGrouped(const GroupedMatmulOp& op, const KernelInfo& tma,
                                   const KernelInfo& any, const KernelInfo& gate,
                                   double memory_bytes_per_s);

}  // namespace gemmd::kernels::cuda
