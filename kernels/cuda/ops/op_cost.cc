#include "kernels/cuda/ops/op_cost.h"

#include <algorithm>
#include <variant>

#include "kernels/op_fields.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr double kLaunchSeconds = 2.5e-6;        // an elementwise kernel that has nothing to do
constexpr double kDefaultBytesPerSecond = 3e12;  // HBM3 with room to spare
constexpr double kMemoryShare = 0.7;             // of the peak, as streaming kernels reach it
// What a kernel fetches at once: an element apart from its neighbours costs a whole one.
constexpr double kSectorBytes = 32;
constexpr double kCacheBytesPerSecond = 5e12;  // from L2, of a Hopper GPU
constexpr double kPcieSeconds = 3e-6;          // there and back, and an engine's start
constexpr double kPcieBytesPerSecond = 45e9;   // gen 5, 16 lanes, from pinned memory

// Along which a kernel's neighbouring threads walk: where the tensor is densest.
int InnerDimension(const TensorRef& tensor) {
  int inner = tensor.shape.rank - 1;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    const bool denser = tensor.strides[i] < tensor.strides[inner] || tensor.shape[inner] == 1;
    if (tensor.shape[i] > 1 && denser) inner = i;
  }
  return inner;
}

}  // namespace

double TouchedSectorBytes(const TensorRef& tensor) {
  const double size = SizeBytes(tensor.dtype);
  double elements = 1;
  // The dimension along which elements are closest, and how far apart they are there.
  double closest = kSectorBytes;
  double extent = 1;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (tensor.shape[i] == 0) return 0;
    elements *= static_cast<double>(tensor.shape[i]);
    const double stride = static_cast<double>(tensor.strides[i]) * size;
    if (tensor.shape[i] == 1 || stride >= closest) continue;
    closest = stride;
    extent = static_cast<double>(tensor.shape[i]);
  }
  if (closest == 0) return size;  // one element, repeated
  // A run begins anywhere in a sector: a short one takes about one more than it fills.
  const double run = (extent - 1) * closest + size;
  const double sectors = std::min(extent, (run - size) / kSectorBytes + 1);
  return elements / extent * sectors * kSectorBytes;
}

double RequestedBytes(const TensorRef& tensor, int inner) {
  const double size = SizeBytes(tensor.dtype);
  const double elements = static_cast<double>(NumElements(tensor.shape).value_or(0));
  const double stride = static_cast<double>(tensor.strides[inner]) * size;
  return elements * std::clamp(stride, size, kSectorBytes);
}

double StreamSeconds(double bytes, double memory_bytes_per_s) {
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : kDefaultBytesPerSecond;
  return kLaunchSeconds + bytes / (rate * kMemoryShare);
}

double MoveSeconds(const Op& op, double memory_bytes_per_s) {
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : kDefaultBytesPerSecond;
  const int inner = InnerDimension(MainTensor(op));
  double sectors = 0, requested = 0;
  ForEachTensor(op, [&](const TensorRef& tensor, Access) {
    sectors += TouchedSectorBytes(tensor);
    // Scales are of another rank, and few.
    if (tensor.shape == MainTensor(op).shape) requested += RequestedBytes(tensor, inner);
  });
  const double device = std::max(sectors / (rate * kMemoryShare), requested / kCacheBytesPerSecond);
  if (std::holds_alternative<WriteOp>(op) || std::holds_alternative<ReadOp>(op)) {
    return kPcieSeconds + std::max(Bytes(op) / kPcieBytesPerSecond, device);
  }
  return kLaunchSeconds + device;
}

}  // namespace gemmd::kernels::cuda
