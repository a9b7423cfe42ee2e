#include "client/cli/quantize.h"

#include <cstdlib>
#include <iterator>
#include <utility>

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

constexpr std::pair<files::DType, DType> kDTypes[] = {
    {files::DType::kF32, DType::kF32},   {files::DType::kBf16, DType::kBF16},
    {files::DType::kF16, DType::kF16},   {files::DType::kE4m3, DType::kE4M3},
    {files::DType::kE5m2, DType::kE5M2}, {files::DType::kI8, DType::kI8}};

}  // namespace

const QuantizeMode& QuantizeModeOf(absl::string_view name) {
  for (const QuantizeMode& mode : kModes) {
    if (mode.name == name) return mode;
  }
  std::abort();  // the parser lets only kQuantizeNames through
}

DType ToClient(files::DType dtype) {
  for (const auto& [of_file, of_client] : kDTypes) {
    if (of_file == dtype) return of_client;
  }
  return DType::kUnspecified;
}

files::DType ToFile(DType dtype) {
  for (const auto& [of_file, of_client] : kDTypes) {
    if (of_client == dtype) return of_file;
  }
  return files::DType::kF32;
}

}  // namespace gemmd::cli
