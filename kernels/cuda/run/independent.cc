#include "kernels/cuda/run/independent.h"

#include <cstdint>

#include "absl/status/status.h"

namespace gemmd::kernels::cuda {
namespace {

// The bytes as addresses.
ByteRange At(const Touched& touched, SlotAddresses slots) {
  const auto slot = static_cast<int64_t>(reinterpret_cast<intptr_t>(slots[touched.slot]));
  return {slot + touched.bytes.begin, slot + touched.bytes.end};
}

}  // namespace

bool Conflict(const OpTouches& a, const OpTouches& b, SlotAddresses slots) {
  for (const Touched& x : a.all) {
    for (const Touched& y : b.all) {
      if ((x.written || y.written) && At(x, slots).Overlaps(At(y, slots))) return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<Touched>> TouchesOf(const Op& op) {
  std::vector<Touched> touches;
  absl::Status status;
  ForEachTensor(op, [&](const TensorRef& tensor, Access access) {
    const absl::StatusOr<ByteRange> bytes = TouchedBytes(tensor);
    if (!bytes.ok()) {
      status.Update(bytes.status());
      return;
    }
    touches.push_back({tensor.slot, *bytes, access == Access::kWrite});
  });
  if (!status.ok()) return status;
  return touches;
}

std::vector<bool> IndependentOps(absl::Span<const OpTouches> ops, SlotAddresses slots) {
  // An independent op lets the next one start before what is in front of itself has ended: a run of
  // them is under way together, with the op in front of the run.
  constexpr size_t kMostUnderWay = 4;
  std::vector<bool> independent(ops.size());
  size_t first = 0;  // of those that may be under way when op i starts
  for (size_t i = 0; i < ops.size(); ++i) {
    bool free = i > 0 && ops[i].may_overlap && i - first <= kMostUnderWay;
    for (size_t j = first; free && j < i; ++j) free = !Conflict(ops[i], ops[j], slots);
    independent[i] = free;
    if (!free) first = i;
  }
  return independent;
}

}  // namespace gemmd::kernels::cuda
