#include "kernels/cpu/runs.h"

#include <algorithm>
#include <utility>

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kRunGrainElements = 1 << 17;  // 40 us or more of work for a thread

struct Dimension {
  int64_t extent, src, dst;
};

}  // namespace

Runs PlanRuns(const Dims& shape, const Dims& src_strides, const Dims& dst_strides) {
  Runs runs;
  std::array<Dimension, kMaxRank> dims;
  int count = 0;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == 0) {
      runs.extents = {0, 0, 0};
      return runs;
    }
    if (shape[i] > 1) dims[count++] = {shape[i], src_strides[i], dst_strides[i]};
  }
  // Largest dst stride first, by insertion: three elements at most, and equal ones keep their
  // order.
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0 && dims[j].dst > dims[j - 1].dst; --j) std::swap(dims[j], dims[j - 1]);
  }
  int merged = 0;
  for (int i = 0; i < count; ++i) {
    Dimension& outer = dims[std::max(merged - 1, 0)];
    const Dimension& inner = dims[i];
    if (merged > 0 && outer.src == inner.extent * inner.src &&
        outer.dst == inner.extent * inner.dst) {
      outer = {outer.extent * inner.extent, inner.src, inner.dst};
    } else {
      dims[merged++] = inner;
    }
  }
  // A single element is a run of stride 1, not 0.
  runs.src_strides[kMaxRank - 1] = runs.dst_strides[kMaxRank - 1] = 1;
  for (int i = 0; i < merged; ++i) {
    const int at = kMaxRank - merged + i;
    runs.extents[at] = dims[i].extent;
    runs.src_strides[at] = dims[i].src;
    runs.dst_strides[at] = dims[i].dst;
  }
  return runs;
}

void ForEachRun(const Runs& runs, const RunContext& context,
                absl::FunctionRef<void(int64_t, int64_t, int64_t)> fn) {
  const int64_t length = runs.extents[2];
  if (length == 0) return;
  context.For(runs.count(), kRunGrainElements, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / length;
      const int64_t first = begin % length;
      const int64_t n = std::min(length - first, end - begin);
      const int64_t i = row / runs.extents[1];
      const int64_t j = row % runs.extents[1];
      fn(i * runs.src_strides[0] + j * runs.src_strides[1] + first * runs.src_strides[2],
         i * runs.dst_strides[0] + j * runs.dst_strides[1] + first * runs.dst_strides[2], n);
      begin += n;
    }
  });
}

}  // namespace gemmd::kernels::cpu
