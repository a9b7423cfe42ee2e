#include "kernels/group_ranges.h"

namespace gemmd::kernels {
namespace {

void ReadOffsets(const GroupNumbers& n, const int32_t* index, DataFault& fault,
                 std::vector<GroupRange>& found) {
  for (int32_t g = 0; g < n.groups; ++g) {
    const int32_t first = index[g], end = index[g + 1];
    if (first < 0 || first > n.extent) {
      ReportFirst(fault, {DataFaultKind::kOffset, g, first, n.extent});
    } else if (end < first || end > n.extent) {
      ReportFirst(fault, {DataFaultKind::kOffset, g + 1, end, n.extent});
    } else if (end > first && first % n.step != 0) {
      ReportFirst(fault, {DataFaultKind::kColumn, g, first, n.step});
    } else {
      found[g] = {first, end - first};
    }
  }
}

void ReadEnds(const GroupNumbers& n, const int32_t* index, DataFault& fault,
              std::vector<GroupRange>& found) {
  int64_t before = 0;  // where the group in front ends
  for (int32_t g = 0; g < n.groups; ++g) {
    const int64_t first = (before + n.alignment - 1) / n.alignment * n.alignment;
    const int32_t end = index[g];
    if (end == before) continue;  // empty; the next one starts where this one would
    if (end < first || end > n.extent) {
      ReportFirst(fault, {DataFaultKind::kEnd, g, end, n.extent});
      continue;
    }
    before = end;
    if (end > first && first % n.step != 0) {
      ReportFirst(fault, {DataFaultKind::kColumn, g, static_cast<int32_t>(first), n.step});
      continue;
    }
    found[g] = {first, end - first};
  }
}

}  // namespace

std::vector<GroupRange> ReadRanges(const GroupNumbers& numbers, const int32_t* index,
                                   DataFault& fault) {
  std::vector<GroupRange> found(numbers.groups);
  const auto read = numbers.layout == GroupLayout::kEnds ? ReadEnds : ReadOffsets;
  read(numbers, index, fault, found);
  return found;
}

void ReportFirst(DataFault& fault, const DataFault& found) {
  if (fault.kind == DataFaultKind::kNone) fault = found;
}

}  // namespace gemmd::kernels
