// The element types gemmd knows. One row in kDTypes describes a type; everything else derives from
// it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gemmd::kernels {

// The numeric values equal gemmd.v1.DType - 1; server/service/convert keeps the two in step by
// static_assert.
enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kE4M3 = 3,  // OCP FP8 E4M3 ("float8_e4m3fn"): no infinities, NaN is S.1111.111, largest 448
  kI8 = 4,
  kI32 = 5,   // counts, offsets and row numbers: moved and read as they are, never multiplied
  kE5M2 = 6,  // OCP FP8 E5M2 ("float8_e5m2"): F16's upper byte, with its infinities and NaNs
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as clients, metrics and .safetensors-style tools show it
  int size_bytes;
  double max_finite;  // largest finite magnitude; Convert saturates to it for E4M3 and I8
};

// Those that matrices are made of: every op that computes takes some of them.
inline constexpr std::array<DTypeInfo, 6> kDTypes = {{
    {DType::kF32, "f32", 4, 3.4028234663852886e38},
    {DType::kBF16, "bf16", 2, 3.3895313892515355e38},
    {DType::kF16, "f16", 2, 65504.0},
    {DType::kE4M3, "e4m3", 1, 448.0},
    {DType::kI8, "i8", 1, 127.0},
    {DType::kE5M2, "e5m2", 1, 57344.0},
}};
inline constexpr DTypeInfo kI32Info = {DType::kI32, "i32", 4, 2147483647.0};
inline constexpr size_t kAllDTypes = kDTypes.size() + 1;

constexpr const DTypeInfo& Info(DType dtype) {
  if (dtype == DType::kI32) return kI32Info;
  return kDTypes[static_cast<int>(dtype) - (dtype > DType::kI32 ? 1 : 0)];
}
constexpr int SizeBytes(DType dtype) { return Info(dtype).size_bytes; }
constexpr std::string_view Name(DType dtype) { return Info(dtype).name; }
// The two that one matmul may mix, as training does: activations in one, gradients in the other.
constexpr bool IsFp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }
constexpr bool Multiply(DType a, DType b) { return a == b || (IsFp8(a) && IsFp8(b)); }

}  // namespace gemmd::kernels
