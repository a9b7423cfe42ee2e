#include "tests/hostile/bystander.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/process.h"

namespace gemmd::hostile {
namespace {

constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
constexpr absl::Duration kEvery = absl::Milliseconds(10);

}  // namespace

absl::Duration Latencies::Percentile(double percent) const {
  if (ok.empty()) return absl::ZeroDuration();
  std::vector<absl::Duration> sorted = ok;
  std::sort(sorted.begin(), sorted.end());
  const auto at = static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

Bystander::Bystander(std::shared_ptr<grpc::Channel> channel, std::function<bool()> execute) {
  const auto repeat = [this](Latencies& latencies, std::function<bool()> call) {
    threads_.emplace_back([this, &latencies, call = std::move(call)] {
      while (!stopping_) {
        const absl::Time begin = absl::Now();
        const bool ok = call();
        Note(latencies, ok, absl::Now() - begin);
        absl::SleepFor(kEvery);
      }
    });
  };
  repeat(health_, [channel = std::move(channel)] {
    return e2e::CallByName(channel, kHealth, "").status.ok();
  });
  if (execute) repeat(executes_, std::move(execute));
}

Bystander::~Bystander() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

Latencies Bystander::Take(Latencies& from) {
  absl::MutexLock lock(&mutex_);
  return std::exchange(from, {});
}

void Bystander::Note(Latencies& to, bool ok, absl::Duration took) {
  absl::MutexLock lock(&mutex_);
  if (ok) {
    to.ok.push_back(took);
  } else {
    ++to.failed;
  }
}

PeakMemory::PeakMemory(pid_t pid) {
  thread_ = std::thread([this, pid] {
    while (!stopping_) {
      bytes_ = std::max(bytes_.load(), e2e::UseOf(pid).resident_bytes);
      absl::SleepFor(kEvery);
    }
  });
}

PeakMemory::~PeakMemory() {
  stopping_ = true;
  thread_.join();
}

}  // namespace gemmd::hostile
