// From a profiler's list of kernels to the time of each call.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::kernels::bench {

// One kernel that ran. Marks are the bench's own empty kernels: one before each timed call.
struct KernelRecord {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  bool mark = false;
};

// Seconds from the first start to the last end of the kernels between two marks, [call][repeat],
// for `calls` calls run `repeats` times by turns. `records` in any order, of one stream. What ran
// before the first mark is nobody's. INTERNAL when a mark, or a call's kernels, are missing.
absl::StatusOr<std::vector<std::vector<double>>> SecondsOfCalls(std::vector<KernelRecord> records,
                                                                int64_t calls, int64_t repeats);

}  // namespace gemmd::kernels::bench
