// Element types as device code knows them. Plain data: shared by host and device.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// The numbers equal gemmd::kernels::DType's, so that a static_cast converts.
enum class ElementType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kE4M3 = 3,
  kI8 = 4,
  kE5M2 = 6,
};

constexpr int ElementBytes(ElementType type) {
  return type == ElementType::kF32                                 ? 4
         : type == ElementType::kBF16 || type == ElementType::kF16 ? 2
                                                                   : 1;
}

}  // namespace gemmd::kernels::cuda
