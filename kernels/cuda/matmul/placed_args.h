// From a MatmulOp and the addresses of its slots to a family's arguments.

#pragma once

#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

// Of an op with a gate, the product's d and the gate's source are null.
MatmulArgs PlacedArgs(const MatmulOp& op, SlotAddresses slots);

}  // namespace gemmd::kernels::cuda
