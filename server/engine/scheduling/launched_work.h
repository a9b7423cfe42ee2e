// LaunchedWork: what a lane has launched, and how much of it is still to come by the estimates.

#pragma once

#include <deque>

#include "absl/time/time.h"

namespace gemmd::server {

// Programs end in the order in which they were launched. Not thread-safe.
class LaunchedWork {
 public:
  void Launched(double estimate, absl::Time now);
  void Ended(absl::Time now);

  bool empty() const { return estimates_.empty(); }
  size_t size() const { return estimates_.size(); }
  double estimated_seconds() const { return seconds_; }  // as if none had begun
  double SecondsLeft(absl::Time now) const;
  absl::Time EndOfFirst() const;  // not when empty

 private:
  std::deque<double> estimates_;  // the first one runs
  double seconds_ = 0;            // their sum
  absl::Time running_since_;
};

}  // namespace gemmd::server
