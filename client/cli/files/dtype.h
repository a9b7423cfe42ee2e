// Element types of matrix files: what the server takes, and F64, which is converted on the way in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::files {

enum class DType { kF32, kBf16, kF16, kE4m3, kE5m2, kI8, kF64 };

int64_t ElementSize(DType dtype);          // bytes
absl::string_view DTypeName(DType dtype);  // "f32", "bf16", "f16", "e4m3", "e5m2", "i8", "f64"
std::optional<DType> DTypeFromName(absl::string_view name);

// Element `index` of densely packed little-endian elements. Exact.
double ElementAt(DType dtype, const std::byte* data, int64_t index);

// The same for a run of elements; `out.size()` of them from `first`.
void ToDouble(DType dtype, const std::byte* data, int64_t first, std::span<double> out);

// Bytes that `shape` takes. INVALID_ARGUMENT when an extent is negative or the product passes
// int64.
absl::StatusOr<int64_t> DenseBytes(std::span<const int64_t> shape, int64_t element_size);

std::string ShapeText(std::span<const int64_t> shape);  // "[3, 4]"

}  // namespace gemmd::files
