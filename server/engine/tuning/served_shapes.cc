#include "server/engine/tuning/served_shapes.h"

#include <algorithm>
#include <utility>

namespace gemmd::server {

void ServedShapes::Add(absl::Span<const kernels::ShapeCalls> calls) {
  if (calls.empty()) return;
  absl::MutexLock lock(&mutex_);
  for (const kernels::ShapeCalls& entry : calls) {
    const bool tuned = entry.reason == kernels::ChoiceReason::kTuned;
    const bool shipped = entry.reason == kernels::ChoiceReason::kTable;
    (tuned ? totals_.tuned : shipped ? totals_.shipped : totals_.modelled) += entry.calls;
    const auto found = calls_.find(entry.shape);
    if (found != calls_.end()) {
      found->second += entry.calls;
    } else if (calls_.size() < kMost) {
      calls_.emplace(entry.shape, entry.calls);
    }
  }
}

std::vector<kernels::TuneShape> ServedShapes::Most(size_t most) const {
  std::vector<std::pair<int64_t, kernels::TuneShape>> all;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [shape, calls] : calls_) all.emplace_back(-calls, shape);
  }
  std::sort(all.begin(), all.end());
  std::vector<kernels::TuneShape> shapes;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) shapes.push_back(all[i].second);
  return shapes;
}

ServedShapes::Totals ServedShapes::totals() const {
  absl::MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace gemmd::server
