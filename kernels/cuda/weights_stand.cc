#include "kernels/cuda/weights_stand.h"

namespace gemmd::kernels::cuda {
namespace {

// Addresses that the tensor may touch; everything when they cannot be told.
ByteRange AddressesOf(const TensorRef& tensor, SlotAddresses slots) {
  const absl::StatusOr<ByteRange> range = TouchedBytes(tensor);
  if (!range.ok()) return {0, INT64_MAX};
  if (range->empty()) return {};
  const auto base = reinterpret_cast<int64_t>(slots[tensor.slot]);
  return {base + range->begin, base + range->end};
}

}  // namespace

bool WeightsStand(const Op& before, const MatmulOp& op, SlotAddresses slots) {
  const ByteRange values = AddressesOf(op.b.values, slots);
  const ByteRange scales = op.b.scales ? AddressesOf(*op.b.scales, slots) : ByteRange();
  bool stand = true;
  ForEachTensor(before, [&](const TensorRef& tensor, Access access) {
    if (access != Access::kWrite) return;
    const ByteRange written = AddressesOf(tensor, slots);
    stand = stand && !written.Overlaps(values) && !written.Overlaps(scales);
  });
  return stand;
}

}  // namespace gemmd::kernels::cuda
