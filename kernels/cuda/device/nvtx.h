// LaunchRange: the launch of a program as profilers such as Nsight Systems show it: a range of the
// host's thread in the domain "gemmd". Its message is "gemmd.launch" and the program's kernels, its
// payload the program's number.
//
// Without a profiler it costs a comparison: NVTX loads nothing and gives no domain.

#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace gemmd::kernels::cuda {

// "gemmd.launch sm90_fp8_tiled, cuda_copy x3": equal ones side by side are counted, and of more
// than eight the rest is "...".
std::string LaunchMessage(absl::Span<const Program::Step> steps);

// From construction to destruction, on one thread; may lie within another.
class LaunchRange {
 public:
  LaunchRange(uint64_t program, absl::Span<const Program::Step> steps);
  ~LaunchRange();
  LaunchRange(const LaunchRange&) = delete;
};

}  // namespace gemmd::kernels::cuda
