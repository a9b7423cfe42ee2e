#include "client/cli/trace/rows.h"

#include <algorithm>

namespace gemmd::cli {

int Rows::Place(int64_t begin_ns, int64_t end_ns) {
  int best = -1;
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i] <= begin_ns && (best < 0 || ends_[i] > ends_[best])) best = static_cast<int>(i);
  }
  if (best < 0) {
    if (static_cast<int>(ends_.size()) == most_) return -1;
    best = static_cast<int>(ends_.size());
    ends_.push_back(0);
  }
  ends_[best] = std::max(begin_ns, end_ns);
  return best;
}

}  // namespace gemmd::cli
