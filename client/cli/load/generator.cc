#include "client/cli/load/generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace gemmd::cli {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the workers share: who sends the next request, and when it is due.
class Turns {
 public:
  explicit Turns(const LoadOptions& options)
      : options_(options),
        seconds_(absl::ToDoubleSeconds(options.duration)),
        schedule_(options.rate, options.poisson, options.seed) {}

  // False when the run is over. Open loop: sets the due time, in seconds after the start.
  bool Take(Clock::time_point start, double* due) {
    if (stopped_) return false;
    std::lock_guard lock(mutex_);
    if (options_.requests > 0 && taken_ == options_.requests) return false;
    *due = options_.rate > 0 ? schedule_.Next() : Since(start);
    if (*due >= seconds_) return false;
    ++taken_;
    return true;
  }

  void Stop() { stopped_ = true; }
  int64_t taken() const { return taken_; }

 private:
  const LoadOptions& options_;
  const double seconds_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  Schedule schedule_;
  int64_t taken_ = 0;
};

void SleepUntil(Clock::time_point when) {
  // The kernel wakes a sleeper some 50 us late; the last stretch is spun so that due times are
  // kept.
  constexpr auto kSpin = std::chrono::microseconds(100);
  if (when - Clock::now() > kSpin) std::this_thread::sleep_until(when - kSpin);
  while (Clock::now() < when) std::this_thread::yield();
}

}  // namespace

double Schedule::Next() {
  if (!poisson_) return static_cast<double>(index_++) / rate_;
  if (index_++ > 0) due_ += std::exponential_distribution<double>(rate_)(random_);
  return due_;
}

LoadReport RunLoad(const LoadOptions& options, const Request& request) {
  LoadReport report;
  Turns turns(options);
  std::mutex mutex;  // guards report
  const Clock::time_point start = Clock::now();
  const auto work = [&](int worker) {
    Latencies latencies;
    absl::Status error;
    double max_late = 0;
    double due = 0;
    while (turns.Take(start, &due)) {
      if (options.rate > 0) {
        SleepUntil(start +
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
        max_late = std::max(max_late, Since(start) - due);
      }
      error = request(worker);
      if (!error.ok()) {
        turns.Stop();
        break;
      }
      latencies.Add(Since(start) - due);
    }
    std::lock_guard lock(mutex);
    report.latencies.Merge(latencies);
    report.max_late_seconds = std::max(report.max_late_seconds, max_late);
    if (!error.ok() && report.errors++ == 0) report.first_error = error;
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < std::max(1, options.concurrency); ++i) workers.emplace_back(work, i);
  for (std::thread& worker : workers) worker.join();
  report.seconds = Since(start);
  report.due = turns.taken();
  return report;
}

}  // namespace gemmd::cli
