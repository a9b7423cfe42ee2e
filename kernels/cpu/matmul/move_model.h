// What ops that move, convert or quantize take: by the lines of cache and the pages that their
// views touch, and by the rows they have, not by their bytes alone. A column of a large matrix
// takes 40 times as long as a row.

#pragma once

#include "kernels/cpu/matmul/model.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// Of any op but a matmul, which has passed ValidateOps.
double OpMoveSeconds(const Machine& machine, const Op& op);

}  // namespace gemmd::kernels::cpu
