// What the CUDA driver calls a GPU in every process, unlike its ordinal.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

// Of device `ordinal`: "GPU-5c3f12ab-..".
absl::StatusOr<std::string> GpuUuid(int ordinal);

}  // namespace gemmd::kernels::cuda
