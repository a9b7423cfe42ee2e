// The families of matmul kernels that a CUDA device has.

#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/device/device_traits.h"
#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

// Beside the TMA family, which the pool itself makes. Their names do not depend on the device.
std::vector<std::shared_ptr<const MatmulFamily>> MatmulFamilies(const DeviceTraits& device,
                                                                double memory_bytes_per_s);

}  // namespace gemmd::kernels::cuda
