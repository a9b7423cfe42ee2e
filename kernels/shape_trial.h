// Measuring the kernels that could multiply one shape: operands of random numbers in memory of
// their own, programs that write the caches full and then multiply, and a caller who runs each
// where and when nobody minds. Any backend with a Tuner.
//
//   auto tuned = TuneOneShape(backend, {.m = 64, .n = 4096, .k = 7168}, {}, run_in_the_lane);
//   backend.tuner()->Keep({{tuned->shape, tuned->times}});

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/tuner.h"

namespace gemmd::kernels {

// The matmul that a shape stands for: E4M3 with 1x128 and 128x128 scales, all dense. Slots are
// those of ShapeTrial's memory.
MatmulOp TrialMatmul(const TuneShape& shape);

struct TuneOptions {
  int kernels = 8;  // at most so many a shape
  // Behind one run that does not count each kernel is measured so often; brief ones more often,
  // since what surrounds an op hides more of them; those that fall behind less often. A kernel that
  // is alone in front ends it.
  int rounds = 3;
  int most_rounds = 96;
  double program_seconds = 500e-6;  // about so long is one program, or one multiplication
  int64_t max_memory_bytes = int64_t{1} << 30;
};

// What one measurement at most may take of a device.
inline constexpr double kMostTrialSeconds = 0.02;

struct TunedShape {
  TuneShape shape;
  std::string before;  // the kernel that was taken until now
  ChoiceReason reason_before = ChoiceReason::kModel;
  double seconds_before = 0;      // measured now, as the others
  std::vector<KernelTime> times;  // medians, best first
  double device_seconds = 0;      // that measuring took
};

// Runs a program to its end, or says why not; what it says ends the whole measurement.
using RunTrial =
    absl::FunctionRef<absl::StatusOr<LaunchResult>(std::shared_ptr<const Program>, Bindings)>;

// INVALID_ARGUMENT for a shape out of range, RESOURCE_EXHAUSTED for one that needs more memory or
// time than it may, or than the device has; UNIMPLEMENTED when nothing is to be chosen there;
// what `run` returned.
absl::StatusOr<TunedShape> TuneOneShape(Backend& backend, const TuneShape& shape,
                                        const TuneOptions& options, RunTrial run);

// Of operands, result and what is written between two measurements. 0 for a shape out of range.
int64_t TrialBytes(const TuneShape& shape, int64_t flush_bytes);

// Extents and type: the value, the limit, the remedy.
absl::Status CheckTuneShape(const TuneShape& shape);

}  // namespace gemmd::kernels
