// A kernel that faults on purpose, to show what a fault does. In builds with GEMMD_FAULT_KERNEL the
// pool has it, for requests that name it; other builds have it in tests only.

#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/ops/any_gemm.h"

namespace gemmd::kernels::cuda {

inline constexpr char kFaultName[] = "fault_on_purpose";

// Queues a store to an address that is nobody's. The arguments do not matter.
cudaError_t LaunchFault(const AnyGemmArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
