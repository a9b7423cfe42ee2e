#include "kernels/bench/cuda/grouped/grouped_measure.h"

#include "absl/strings/str_cat.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

// Largest difference of two orders of summation, rounded to BF16.
constexpr double kLargestDifference = 5e-3;
constexpr int kFloorsTried = 4;

// Runs `mine`, and holds its result against the one of the kernel that takes anything.
absl::Status CheckResult(const Call& mine, Machine& machine, GroupedWorkload& work,
                         double& difference) {
  if (absl::Status s = mine(machine.stream); !s.ok()) return s;
  const absl::StatusOr<double> found = work.Difference(machine.stream);
  if (!found.ok()) return found.status();
  difference = *found;
  if (difference <= kLargestDifference) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("wrong: difference ", difference));
}

absl::Status CheckBits(const Call& mine, int runs, Machine& machine, GroupedWorkload& work) {
  for (int i = 0; i < runs; ++i) {
    if (absl::Status s = mine(machine.stream); !s.ok()) return s;
    const absl::StatusOr<bool> same = work.SameBits(machine.stream);
    if (!same.ok()) return same.status();
    if (!*same) return absl::InternalError(absl::StrCat("other bits in run ", i + 2));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureGrouped(const GroupedMethod& method, Machine& machine, GroupedWorkload& work,
                            GroupedTime& time) {
  if (absl::Status s = work.Prepare(time.c, method.seed, machine.stream); !s.ok()) return s;
  auto mine = work.Bind(true, machine.traits, method.config, method.grain);
  if (!mine.ok()) return mine.status();
  auto other = work.Bind(false, machine.traits);
  if (!other.ok()) return other.status();
  if (absl::Status s = (*other)(machine.stream); !s.ok()) return s;
  std::vector<Call> calls = {*mine};
  const bool all_kernels = method.all_kernels && time.c.dtype == DType::kE4M3 && time.c.blocks;
  for (int i = 0; all_kernels && i < cuda::kRowsKernels; ++i) {
    auto forced = work.Bind(true, machine.traits, i);
    if (!forced.ok()) return forced.status();
    calls.push_back(*std::move(forced));
  }
  const size_t kernels = calls.size();
  for (size_t i = kernels; i-- > 0;) {  // the chosen one's difference is the one told
    if (absl::Status s = CheckResult(calls[i], machine, work, time.difference); !s.ok()) return s;
  }
  if (absl::Status s = CheckBits(*mine, method.again, machine, work); !s.ok()) return s;
  const FloorTraffic traffic = work.traffic();
  for (int i = 0; i < kFloorsTried; ++i) {
    calls.push_back([i, traffic, sms = machine.traits.sms](cudaStream_t stream) {
      return cuda::ToStatus(LaunchFloor(kFloorConfigs[i], traffic, sms, stream), "the floor");
    });
  }
  auto seconds = machine.timer->Time(calls, method.repeats);
  if (!seconds.ok()) return seconds.status();
  time.us = Median((*seconds)[0]) * 1e6;
  time.chosen = static_cast<int>(work.Chosen());
  for (size_t i = 1; i < seconds->size(); ++i) {
    const double us = Median((*seconds)[i]) * 1e6;
    if (i < kernels) {
      time.kernels_us.push_back(us);
    } else if (time.floor_us == 0 || us < time.floor_us) {
      time.floor_us = us;
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::bench
