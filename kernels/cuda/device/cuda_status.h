// The one place where CUDA codes become absl::Status.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace gemmd::kernels::cuda {

// OK for success. RESOURCE_EXHAUSTED for memory, UNIMPLEMENTED for a device or driver that cannot
// run the code, UNAVAILABLE for sticky errors (after which the device serves nothing more in this
// process), INTERNAL for the rest. The message is "what: name of the code: its description".
absl::Status ToStatus(cudaError_t code, std::string_view what);
absl::Status ToStatus(CUresult code, std::string_view what);

// Errors after which every further call on the device fails: illegal address, launch failure, ECC.
bool IsSticky(cudaError_t code);

}  // namespace gemmd::kernels::cuda
