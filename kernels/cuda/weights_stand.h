// Whether a matmul may read its weights while the op before it still runs.

#ifndef GEMMD_KERNELS_CUDA_WEIGHTS_STAND_H_
#define GEMMD_KERNELS_CUDA_WEIGHTS_STAND_H_

#include "kernels/cuda/op_args.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// True when `before` writes no byte of `op`'s B or of B's scales. By address: two slots may lie on
// one allocation that was imported twice.
bool WeightsStand(const Op& before, const MatmulOp& op, SlotAddresses slots);

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_WEIGHTS_STAND_H_
