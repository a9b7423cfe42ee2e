#include "client/cli/files/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd::files {
namespace {

static_assert(std::endian::native == std::endian::little, "files and wire are little-endian");

struct Row {
  DType dtype;
  int64_t size;
  absl::string_view name;
};

constexpr Row kRows[] = {
    {DType::kF32, 4, "f32"},   {DType::kBf16, 2, "bf16"}, {DType::kF16, 2, "f16"},
    {DType::kE4m3, 1, "e4m3"}, {DType::kE5m2, 1, "e5m2"}, {DType::kI8, 1, "i8"},
    {DType::kF64, 8, "f64"},
};

const Row& RowOf(DType dtype) { return kRows[static_cast<int>(dtype)]; }

template <typename T>
T Load(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));  // a file's data need not be aligned
  return value;
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// OCP E4M3 ("fn"): bias 7, no infinities, 0x7f and 0xff are NaN.
double E4m3ToDouble(uint8_t bits) {
  const int exponent = (bits >> 3) & 0xf;
  const int fraction = bits & 0x7;
  double magnitude;
  if (exponent == 0xf && fraction == 0x7) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -9);
  } else {
    magnitude = std::ldexp(8 + fraction, exponent - 10);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// One conversion for every byte value: a matrix asks for millions.
const double* E4m3Table() {
  static const auto* table = [] {
    auto* values = new double[256];
    for (int bits = 0; bits < 256; ++bits) values[bits] = E4m3ToDouble(static_cast<uint8_t>(bits));
    return values;
  }();
  return table;
}

}  // namespace

int64_t ElementSize(DType dtype) { return RowOf(dtype).size; }

absl::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

double ElementAt(DType dtype, const std::byte* data, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return Load<float>(data, index);
    case DType::kBf16:
      return std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(data, index)) << 16);
    case DType::kF16:
      return HalfToDouble(Load<uint16_t>(data, index));
    case DType::kE4m3:
      return E4m3Table()[Load<uint8_t>(data, index)];
    case DType::kE5m2:  // F16's upper byte
      return HalfToDouble(static_cast<uint16_t>(Load<uint8_t>(data, index) << 8));
    case DType::kI8:
      return Load<int8_t>(data, index);
    case DType::kF64:
      return Load<double>(data, index);
  }
  return 0;
}

void ToDouble(DType dtype, const std::byte* data, int64_t first, std::span<double> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = ElementAt(dtype, data, first + static_cast<int64_t>(i));
  }
}

absl::StatusOr<int64_t> DenseBytes(std::span<const int64_t> shape, int64_t element_size) {
  int64_t bytes = element_size;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeText(shape), " has a negative extent"));
    }
    // Extents beside a 0 must still be sane: [0, 2^62, 2^62] is refused.
    if (__builtin_mul_overflow(bytes, extent == 0 ? 1 : extent, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape ", ShapeText(shape), " of ", element_size, "-byte elements passes 2^63 bytes"));
    }
    empty |= extent == 0;
  }
  return empty ? 0 : bytes;
}

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ", "), "]");
}

}  // namespace gemmd::files
