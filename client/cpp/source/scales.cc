#include "client/cpp/scales.h"

#include <utility>

namespace gemmd::client {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kPadding = 4;  // floats: 16 bytes, what TMA wants strides to be a multiple of

int64_t CeilDiv(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace

std::vector<int64_t> ScalesShape(absl::Span<const int64_t> values, ScaleGranularity granularity) {
  if (values.size() < 2 || granularity == ScaleGranularity::kNone) return {};
  const int64_t rows = values[values.size() - 2];
  const int64_t blocks = CeilDiv(values.back(), kBlock);
  std::vector<int64_t> shape(values.begin(), values.end() - 2);
  switch (granularity) {
    case ScaleGranularity::kNone:
      break;
    case ScaleGranularity::kPerTensor:
      shape.push_back(1);
      break;
    case ScaleGranularity::kPerRow:
      shape.push_back(rows);
      break;
    case ScaleGranularity::kBlock1x128:
      shape.insert(shape.end(), {rows, blocks});
      break;
    case ScaleGranularity::kBlock128x128:
      shape.insert(shape.end(), {CeilDiv(rows, kBlock), blocks});
      break;
  }
  return shape;
}

std::vector<int64_t> ScalesRoom(absl::Span<const int64_t> values, ScaleGranularity granularity) {
  std::vector<int64_t> shape = ScalesShape(values, granularity);
  if (granularity != ScaleGranularity::kBlock1x128 || shape.empty()) return shape;
  int64_t& rows = shape[shape.size() - 2];
  rows = CeilDiv(rows, kPadding) * kPadding;
  std::swap(rows, shape.back());
  return shape;
}

Tensor ScalesIn(const Tensor& room, absl::Span<const int64_t> values,
                ScaleGranularity granularity) {
  const Tensor scales = room.Reshaped(ScalesRoom(values, granularity));
  if (granularity != ScaleGranularity::kBlock1x128 || !scales.status().ok()) return scales;
  return scales.Transposed().Slice(scales.rank() - 2, 0, values[values.size() - 2]);
}

}  // namespace gemmd::client
