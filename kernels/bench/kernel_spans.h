// Where a program's time goes: its kernels' own starts and ends, as the profiler tells them. Events
// between ops would keep each kernel from starting under the end of the one in front.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gemmd::kernels::bench {

struct KernelSpan {
  std::string name;  // mangled
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// "Fp8Grouped" of "_ZN5gemmd7kernels4cuda10Fp8GroupedILm1ELm2ELb0EEEvNS1_13GroupedLaunchE": the
// function alone, without namespaces and arguments.
std::string ShortName(std::string_view mangled);

// Medians over the runs of a program. A kernel that starts under the end of the one in front waits
// inside: `added` is what it adds to the run, from the latest end in front of it to its own.
struct KernelPart {
  std::string name;
  double start_us = 0;  // from the run's first start
  double end_us = 0;
  double added_us = 0;
};
struct RunParts {
  std::vector<KernelPart> kernels;
  double us = 0;  // from the first start to the last end
};

// Each run begins behind a kernel whose name has `divider` in it, and has as many kernels as the
// last one; runs of other numbers (a first one, op by op) are left out. Empty when there is none.
RunParts PartsOfRuns(std::vector<KernelSpan> spans, std::string_view divider);

}  // namespace gemmd::kernels::bench
