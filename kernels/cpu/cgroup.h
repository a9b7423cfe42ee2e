// What the control groups that this process is in allow: version 1 or 2, or both at once.

#pragma once

#include <cstdint>
#include <string>

namespace gemmd::kernels::cpu {

// 0 where nothing limits.
struct CgroupLimits {
  int64_t memory_bytes = 0;
  double cpus = 0;  // processors' worth of time
  friend bool operator==(const CgroupLimits&, const CgroupLimits&) = default;
};

// The smallest on the way from the process's group up to the root, as far as it is mounted: a limit
// holds for all below it. `root` is where /proc and /sys are, for tests.
CgroupLimits ReadCgroupLimits(const std::string& root = "");

}  // namespace gemmd::kernels::cpu
