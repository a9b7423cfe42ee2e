#include "bench/load/generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gemmd::bench {
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
        last_(absl::ToDoubleSeconds(options.duration + options.grace / 2)),
        schedule_(options.rate, options.poisson, options.seed) {}

  // False when the run is over. Open loop: sets the due time, in seconds after the start.
  bool Take(Clock::time_point start, double* due) {
    if (stopped_) return false;
    std::lock_guard lock(mutex_);
    if (options_.requests > 0 && taken_ == options_.requests) return false;
    const double now = Since(start);
    if (options_.rate > 0 && now >= last_) return false;
    *due = options_.rate > 0 ? schedule_.Next() : now;
    if (*due >= seconds_) {
      all_taken_ = true;
      return false;
    }
    last_due_ = *due;
    ++taken_;
    return true;
  }

  void Stop() { stopped_ = true; }

  int64_t taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

  // Open loop: how many more were due within the duration.
  int64_t Left() {
    std::lock_guard lock(mutex_);
    if (options_.rate <= 0 || all_taken_) return 0;
    const double more = options_.poisson ? (seconds_ - last_due_) * options_.rate
                                         : std::ceil(seconds_ * options_.rate) - taken_;
    auto left = static_cast<int64_t>(std::clamp(more, 0.0, 9e18));
    if (options_.requests > 0) left = std::min(left, options_.requests - taken_);
    return left;
  }

 private:
  const LoadOptions options_;
  const double seconds_;
  const double last_;  // after the start; nothing is sent from then on
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  Schedule schedule_;
  int64_t taken_ = 0;
  double last_due_ = 0;
  bool all_taken_ = false;
};

// What one worker has seen. Its lock is free but when the run ends.
struct Seen {
  std::mutex mutex;  // guards what follows
  Latencies latencies;
  double max_late = 0;
};

// What a run's threads share. Those left behind keep it.
struct Run {
  Run(const LoadOptions& options, const Request& request)
      : options(options),
        request(request),
        turns(options),
        seen(std::max(1, options.concurrency)),
        working(static_cast<int>(seen.size())) {}

  void Work(int worker);

  const LoadOptions options;
  const Request request;
  const Clock::time_point start = Clock::now();
  Turns turns;
  std::deque<Seen> seen;  // by worker
  std::mutex mutex;       // guards what follows
  std::condition_variable stopped;
  int working;
  int64_t errors = 0;
  absl::Status first_error;
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

void Run::Work(int worker) {
  Seen& mine = seen[worker];
  absl::Status error;
  double due = 0;
  while (error.ok() && turns.Take(start, &due)) {
    double late = 0;
    if (options.rate > 0) {
      SleepUntil(start +
                 std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
      late = Since(start) - due;
    }
    error = request(worker);
    const double latency = Since(start) - due;
    std::lock_guard lock(mine.mutex);
    mine.max_late = std::max(mine.max_late, late);
    if (error.ok()) mine.latencies.Add(latency);
  }
  if (!error.ok()) turns.Stop();
  std::lock_guard lock(mutex);
  if (!error.ok() && errors++ == 0) first_error = error;
  --working;
  stopped.notify_all();
}

LoadReport RunLoad(const LoadOptions& options, const Request& request) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);  // within what the clock can add
  const auto run = std::make_shared<Run>(options, request);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < run->seen.size(); ++i) {
    workers.emplace_back([run, i] { run->Work(static_cast<int>(i)); });
  }
  LoadReport report;
  {
    std::unique_lock lock(run->mutex);
    const absl::Duration longest = std::min(options.duration + options.grace, kLongest);
    run->stopped.wait_until(lock, run->start + absl::ToChronoNanoseconds(longest),
                            [&] { return run->working == 0; });
    report.seconds = Since(run->start);
    report.unanswered = run->working;
    report.errors = run->errors;
    report.first_error = run->first_error;
  }
  run->turns.Stop();
  for (std::thread& worker : workers) {
    if (report.unanswered > 0) {
      worker.detach();
    } else {
      worker.join();
    }
  }
  for (Seen& seen : run->seen) {
    std::lock_guard lock(seen.mutex);
    report.latencies.Merge(seen.latencies);
    report.max_late_seconds = std::max(report.max_late_seconds, seen.max_late);
  }
  report.unsent = run->turns.Left();
  report.due = run->turns.taken() + report.unsent;
  return report;
}

}  // namespace gemmd::bench
