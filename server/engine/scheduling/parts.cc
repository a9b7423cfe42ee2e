#include "server/engine/scheduling/parts.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace gemmd::server {
namespace {

using kernels::Op;

constexpr int kNone = -1;
// Ranges of a slot that are told apart. With more of them all are one, which makes parts wait for
// more than they have to.
constexpr size_t kMostRanges = 64;
// Ops that may follow in a part behind the one that others wait for: the others are launched when
// all of the part is, some 4 us an op.
constexpr int kMostBehindMark = 3;

// Which ops touched some bytes last: by lane.
struct Range {
  int64_t begin = 0, end = 0;
  std::vector<int> written, read;

  bool Overlaps(int64_t from, int64_t to) const { return begin < to && from < end; }
};

class History {
 public:
  explicit History(int lanes) : lanes_(lanes) {}

  // Calls `fn` with each op that `tensor` has to stay behind: one of each lane at most and range.
  template <typename Fn>
  void ForEachBefore(const kernels::TensorRef& tensor, kernels::Access access, Fn fn) const {
    const auto found = slots_.find(tensor.slot);
    if (found == slots_.end()) return;
    const auto touched = *kernels::TouchedBytes(tensor);
    for (const Range& range : found->second) {
      if (!range.Overlaps(touched.begin, touched.end)) continue;
      for (const int op : range.written) fn(op);
      if (access == kernels::Access::kRead) continue;
      for (const int op : range.read) fn(op);
    }
  }

  void Add(const kernels::TensorRef& tensor, kernels::Access access, int op, int lane) {
    const auto touched = *kernels::TouchedBytes(tensor);
    if (touched.begin >= touched.end) return;
    std::vector<Range>& ranges = slots_[tensor.slot];
    Range& range = RangeOf(ranges, touched.begin, touched.end);
    (access == kernels::Access::kWrite ? range.written : range.read)[lane] = op;
  }

 private:
  Range& RangeOf(std::vector<Range>& ranges, int64_t begin, int64_t end) {
    for (Range& range : ranges) {
      if (range.begin == begin && range.end == end) return range;
    }
    if (ranges.size() < kMostRanges) {
      return ranges.emplace_back(
          Range{begin, end, std::vector<int>(lanes_, kNone), std::vector<int>(lanes_, kNone)});
    }
    Range all = std::move(ranges.front());
    for (size_t i = 1; i < ranges.size(); ++i) Merge(ranges[i], all);
    all.begin = std::min(all.begin, begin);
    all.end = std::max(all.end, end);
    ranges.assign(1, std::move(all));
    return ranges.front();
  }

  static void Merge(const Range& other, Range& all) {
    all.begin = std::min(all.begin, other.begin);
    all.end = std::max(all.end, other.end);
    for (size_t lane = 0; lane < all.written.size(); ++lane) {
      all.written[lane] = std::max(all.written[lane], other.written[lane]);
      all.read[lane] = std::max(all.read[lane], other.read[lane]);
    }
  }

  const int lanes_;
  absl::flat_hash_map<int, std::vector<Range>> slots_;
};

// By op, the last op of each other lane that it has to stay behind.
std::vector<std::vector<int>> Behind(absl::Span<const Op> ops, absl::Span<const int> lanes,
                                     int num_lanes) {
  std::vector<std::vector<int>> behind(ops.size());
  History history(num_lanes);
  std::vector<int> last(num_lanes);
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    std::fill(last.begin(), last.end(), kNone);
    kernels::ForEachTensor(ops[i], [&](const kernels::TensorRef& tensor, kernels::Access access) {
      history.ForEachBefore(tensor, access, [&](int op) {
        if (op != kNone && lanes[op] != lanes[i]) last[lanes[op]] = std::max(last[lanes[op]], op);
      });
    });
    for (const int op : last) {
      if (op != kNone) behind[i].push_back(op);
    }
    kernels::ForEachTensor(ops[i], [&](const kernels::TensorRef& tensor, kernels::Access access) {
      history.Add(tensor, access, i, lanes[i]);
    });
  }
  return behind;
}

// Of ops that others wait for: which may be followed by more of their part. Those behind which a
// few of the lane's ops come, and then one that waits, or one that ends its part, or the end.
std::vector<bool> GoOn(absl::Span<const int> lanes, const std::vector<bool>& awaited,
                       const std::vector<std::vector<int>>& behind,
                       const std::vector<bool>& marks) {
  std::vector<bool> go_on(lanes.size());
  std::vector<int> run(marks.size());  // by lane: its ops up to the next part
  for (int i = static_cast<int>(lanes.size()) - 1; i >= 0; --i) {
    const size_t lane = lanes[i];
    if (lane >= marks.size() || !marks[lane]) continue;
    go_on[i] = run[lane] <= kMostBehindMark;
    run[lane] = !behind[i].empty() ? 0 : awaited[i] && !go_on[i] ? 1 : run[lane] + 1;
  }
  return go_on;
}

}  // namespace

std::vector<OpRun> CutIntoParts(absl::Span<const Op> ops, absl::Span<const int> lanes,
                                const std::vector<bool>& marks) {
  const int num_lanes = lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()) + 1;
  std::vector<std::vector<int>> behind = Behind(ops, lanes, num_lanes);
  std::vector<bool> awaited(ops.size());
  // What a lane has waited for once, the rest of it is behind as well.
  std::vector<std::vector<int>> passed(num_lanes, std::vector<int>(num_lanes, kNone));
  for (size_t i = 0; i < ops.size(); ++i) {
    std::vector<int>& seen = passed[lanes[i]];
    std::erase_if(behind[i], [&](int op) { return op <= seen[lanes[op]]; });
    for (const int op : behind[i]) {
      awaited[op] = true;
      seen[lanes[op]] = op;
    }
  }
  const std::vector<bool> go_on = GoOn(lanes, awaited, behind, marks);
  std::vector<OpRun> parts;
  std::vector<int> open(num_lanes, kNone);          // the part that the lane's next op may join
  std::vector<OpRun::Before> place_of(ops.size());  // of those that are awaited
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    int& part = open[lanes[i]];
    if (part == kNone || !behind[i].empty()) {
      part = static_cast<int>(parts.size());
      parts.push_back({.lane = lanes[i]});
      for (const int op : behind[i]) parts[part].after.push_back(place_of[op]);
      std::sort(parts[part].after.begin(), parts[part].after.end());
    }
    if (awaited[i]) {
      place_of[i] = {part, static_cast<int>(parts[part].awaited.size())};
      parts[part].awaited.push_back(static_cast<int>(parts[part].ops.size()));
    }
    parts[part].ops.push_back(i);
    if (awaited[i] && !go_on[i]) part = kNone;
  }
  return parts;
}

}  // namespace gemmd::server
