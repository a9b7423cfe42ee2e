// What watching costs a lane: CPU time of one program's way through it, by a device that does
// nothing, while nobody records the timeline, one does, and as many as may.
//
//   build/cpu/tests/server/engine/timeline_bench
//
// Prints the least and the median over rounds that take turns, so that all see the same machine.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "server/engine/scheduling/lane.h"
#include "tests/server/engine/fake_backend.h"

namespace gemmd::server {
namespace {

constexpr int kRounds = 41;
constexpr int kPrograms = 4000;

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Bench {
 public:
  // CPU nanoseconds a program, with so many recordings.
  double Run(int recordings) {
    std::vector<Recording> watching;
    for (int i = 0; i < recordings; ++i) watching.push_back(*timeline_.Begin(clock_.Now()));
    const double begin = CpuSeconds();
    for (int i = 0; i < kPrograms; ++i) RunOne();
    return (CpuSeconds() - begin) / kPrograms * 1e9;
  }

 private:
  void RunOne() {
    auto job = std::make_shared<Job>();
    job->program = program_;
    job->tenant = &tenant_;
    job->session_key = 1;
    job->done = [](JobResult) {};
    lane_.Submit(std::move(job)).IgnoreError();
    FakeDevice::Launched launched = device_.TakeOne();
    kernels::LaunchResult result;
    result.started = absl::Now();
    result.device_seconds = 1e-6;
    result.op_seconds = {1e-6f};
    result.ops_timed = true;
    std::move(launched.done)(std::move(result));
  }

  FakeDevice device_;
  FakeBackend backend_{device_};
  SystemClock clock_;
  Metrics metrics_{"bench"};
  Tenant tenant_{0, {}};
  Timeline timeline_;
  Lane lane_{backend_, {}, clock_, metrics_, timeline_};
  const std::shared_ptr<const FakeProgram> program_ = std::make_shared<FakeProgram>(1e-6);
};

void Main() {
  Bench bench;
  std::map<int, std::vector<double>> nanoseconds;
  for (int round = 0; round < kRounds; ++round) {
    for (int recordings : {0, 1, Timeline::kMaxRecordings}) {
      nanoseconds[recordings].push_back(bench.Run(recordings));
    }
  }
  std::printf("recordings  least ns a program  median\n");
  for (auto& [recordings, rounds] : nanoseconds) {
    std::sort(rounds.begin(), rounds.end());
    std::printf("%10d  %18.0f  %6.0f\n", recordings, rounds.front(), rounds[rounds.size() / 2]);
  }
}

}  // namespace
}  // namespace gemmd::server

int main() { gemmd::server::Main(); }
