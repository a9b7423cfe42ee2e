// The element types gemmd knows. One row in kDTypes describes a type; everything else derives from
// it.

#ifndef GEMMD_KERNELS_DTYPE_H_
#define GEMMD_KERNELS_DTYPE_H_

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
  kI32 = 5,  // counts, offsets and row numbers: moved and read as they are, never multiplied
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as clients, metrics and .safetensors-style tools show it
  int size_bytes;
  double
      max_finite;  // largest finite magnitude; Convert and Quantize saturate to it for E4M3 and I8
};

// Those that matrices are made of: every op that computes takes some of them.
inline constexpr std::array<DTypeInfo, 5> kDTypes = {{
    {DType::kF32, "f32", 4, 3.4028234663852886e38},
    {DType::kBF16, "bf16", 2, 3.3895313892515355e38},
    {DType::kF16, "f16", 2, 65504.0},
    {DType::kE4M3, "e4m3", 1, 448.0},
    {DType::kI8, "i8", 1, 127.0},
}};
inline constexpr DTypeInfo kI32Info = {DType::kI32, "i32", 4, 2147483647.0};
inline constexpr size_t kAllDTypes = kDTypes.size() + 1;

constexpr const DTypeInfo& Info(DType dtype) {
  return dtype == DType::kI32 ? kI32Info : kDTypes[static_cast<int>(dtype)];
}
constexpr int SizeBytes(DType dtype) { return Info(dtype).size_bytes; }
constexpr std::string_view Name(DType dtype) { return Info(dtype).name; }

}  // namespace gemmd::kernels

#endif  // GEMMD_KERNELS_DTYPE_H_
