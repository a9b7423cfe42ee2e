// The backend with kernels that misbehave on purpose. For tests: the daemon has no way to ask for
// these.

#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/plain_family.h"

namespace gemmd::kernels::cuda {

struct CudaTestHooks {
  std::vector<std::string> spoiled_kernels;  // that fail their self-test
  std::vector<PlainKernel> more_kernels;     // in the pool too, behind the others
};

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackendForTest(const CudaBackendOptions& options,
                                                                  CudaTestHooks hooks);

}  // namespace gemmd::kernels::cuda
