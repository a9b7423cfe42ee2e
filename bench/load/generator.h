// Load: closed loop (each worker sends the next request when the last is answered) and open loop
// (requests are due at times that do not depend on the answers).
//
// In the open loop a latency counts from when the request was due, not from when a worker got round
// to it: a server that stalls is charged for everything that was due meanwhile (no coordinated
// omission).

#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/load/percentiles.h"

namespace gemmd::bench {

struct LoadOptions {
  int concurrency = 1;  // workers, each with one request in flight; at least 1
  absl::Duration duration = absl::Seconds(5);
  // After `duration`: in the first half of it requests that were due may still be sent, in all of
  // it those under way be answered. Then the run ends, whatever was asked for.
  absl::Duration grace = absl::InfiniteDuration();
  int64_t requests = 0;  // stop after so many; 0: only `duration` ends the run
  double rate = 0;       // requests a second, over all workers; 0: closed loop
  bool poisson = false;  // due times as a Poisson process instead of evenly spaced
  uint64_t seed = 1;     // of the Poisson process
};

struct LoadReport {
  Latencies latencies;  // of the requests that succeeded
  int64_t errors = 0;
  absl::Status first_error;
  double seconds = 0;      // first request to last answer
  int64_t due = 0;         // open loop: requests that were due within the duration, sent or not
  int64_t unsent = 0;      // of these; with Poisson times as many as the rate lets one expect
  int64_t unanswered = 0;  // under way when the grace was over
  double max_late_seconds =
      0;  // open loop: how far behind its due time a request was sent at worst
};

// The worker's number, 0 to concurrency - 1; runs on that worker's thread.
using Request = std::function<absl::Status(int worker)>;

// Returns when every worker has stopped, or the grace is over. A worker stops at its first error: a
// broken server is reported, not hammered. One whose request is not answered within the grace is
// left behind with a copy of `request`: what that refers to must outlive it, so a `request` of a
// run with a grace owns what it needs.
LoadReport RunLoad(const LoadOptions& options, const Request& request);

// Gaps between due times, in seconds.
class Schedule {
 public:
  Schedule(double rate, bool poisson, uint64_t seed)
      : rate_(rate), poisson_(poisson), random_(seed) {}
  // Seconds after the start at which the next request is due; the first is due at 0.
  double Next();

 private:
  const double rate_;
  const bool poisson_;
  std::mt19937_64 random_;
  int64_t index_ = 0;
  double due_ = 0;
};

}  // namespace gemmd::bench
