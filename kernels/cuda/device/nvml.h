// The driver's management library, loaded at run time: a GPU's clocks, power and memory. A machine
// without it, or a container that hides it, has a GPU all the same.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/sensors.h"

namespace gemmd::kernels::cuda {

// Of the GPU with this uuid ("GPU-5c3f..."). UNIMPLEMENTED when the library cannot be loaded,
// FAILED_PRECONDITION when it does not start or does not know the GPU (a MIG slice). A value that
// it refuses later stays 0 in the reading. `library` is what the driver calls it.
absl::StatusOr<std::shared_ptr<const Sensors>> OpenNvml(
    const std::string& gpu_uuid, const std::string& library = "libnvidia-ml.so.1");

}  // namespace gemmd::kernels::cuda
