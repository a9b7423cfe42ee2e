#include "kernels/bench/slots.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::kernels::bench {

absl::StatusOr<std::vector<std::vector<double>>> SecondsOfCalls(std::vector<KernelRecord> records,
                                                                int64_t calls, int64_t repeats) {
  struct Slot {
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
  };
  std::sort(records.begin(), records.end(),
            [](const KernelRecord& x, const KernelRecord& y) { return x.start_ns < y.start_ns; });
  std::vector<Slot> slots;
  for (const KernelRecord& record : records) {
    if (record.mark) {
      slots.emplace_back();
    } else if (!slots.empty()) {
      Slot& slot = slots.back();
      if (slot.end_ns == 0) slot.start_ns = record.start_ns;
      slot.end_ns = std::max(slot.end_ns, record.end_ns);
    }
  }
  if (static_cast<int64_t>(slots.size()) != calls * repeats) {
    return absl::InternalError(absl::StrCat("the profiler reported ", slots.size(), " of ",
                                            calls * repeats, " timed calls; use --timer events"));
  }
  std::vector<std::vector<double>> seconds(calls);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].end_ns <= slots[i].start_ns) {
      return absl::InternalError(absl::StrCat("the profiler reported no kernel for call ",
                                              i % calls, "; use --timer events"));
    }
    seconds[i % calls].push_back((slots[i].end_ns - slots[i].start_ns) * 1e-9);
  }
  return seconds;
}

}  // namespace gemmd::kernels::bench
