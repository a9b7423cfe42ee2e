// The kernels of kernels/cuda/{any_gemm,quantize,elementwise} as the contract suite's subject: each
// op is launched by itself, with nothing chosen.

#pragma once

#include <memory>

#include "tests/kernels/contract/executor.h"

namespace gemmd::kernels::cuda {

// `programmatic` launches every kernel so that it may overlap the end of the one before it.
std::unique_ptr<contract::Executor> MakeKernelExecutor(bool programmatic);

// The same ops on the CPU backend's own functions, matmul left out. Its results are the bits that
// the device's must equal.
std::unique_ptr<contract::Executor> MakeCpuExecutor();

}  // namespace gemmd::kernels::cuda
