#include "client/cli/quantize.h"

#include <cstdlib>

namespace gemmd::cli {
namespace {

using client::DType;
using client::ScaleGranularity;

constexpr QuantizeMode kModes[] = {
    {"none", DType::kUnspecified, ScaleGranularity::kNone, ScaleGranularity::kNone},
    {"fp8-block", DType::kE4M3, ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128},
    {"fp8-tensor", DType::kE4M3, ScaleGranularity::kPerTensor, ScaleGranularity::kPerTensor},
    {"fp8-row", DType::kE4M3, ScaleGranularity::kPerRow, ScaleGranularity::kPerRow},
    {"int8-row", DType::kI8, ScaleGranularity::kPerRow, ScaleGranularity::kPerRow},
    {"int8-tensor", DType::kI8, ScaleGranularity::kPerTensor, ScaleGranularity::kPerTensor},
    {"int8-block", DType::kI8, ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128},
};
static_assert(std::size(kModes) == std::size(kQuantizeNames),
              "a name without a mode, or the reverse");

}  // namespace

const QuantizeMode& QuantizeModeOf(absl::string_view name) {
  for (const QuantizeMode& mode : kModes) {
    if (mode.name == name) return mode;
  }
  std::abort();  // the parser lets only kQuantizeNames through
}

DType ToClient(files::DType dtype) {
  switch (dtype) {
    case files::DType::kF32:
      return DType::kF32;
    case files::DType::kBf16:
      return DType::kBF16;
    case files::DType::kF16:
      return DType::kF16;
    case files::DType::kE4m3:
      return DType::kE4M3;
    case files::DType::kE5m2:
      return DType::kE5M2;
    case files::DType::kI8:
      return DType::kI8;
    case files::DType::kF64:
      break;
  }
  return DType::kUnspecified;
}

files::DType ToFile(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return files::DType::kBf16;
    case DType::kF16:
      return files::DType::kF16;
    case DType::kE4M3:
      return files::DType::kE4m3;
    case DType::kE5M2:
      return files::DType::kE5m2;
    case DType::kI8:
      return files::DType::kI8;
    default:
      return files::DType::kF32;
  }
}

}  // namespace gemmd::cli
