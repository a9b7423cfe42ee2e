// Activations as device code knows them. Plain data: shared by host and device.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// The numbers equal gemmd::kernels::Activation's, so that a static_cast converts.
enum class ActivationType : uint8_t {
  kNone = 0,
  kRelu = 1,
  kSilu = 2,
  kGeluTanh = 3,
  kGeluErf = 4,
  kReluSquared = 5
};

}  // namespace gemmd::kernels::cuda
