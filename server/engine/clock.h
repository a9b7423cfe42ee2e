// Time comes through a Clock, so that tests decide when a session expires.

#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd::server {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // How far Now() is ahead of a clock that nobody sets: it changes when this one is set.
  virtual absl::Duration Ahead() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Ahead() const override {
    return absl::Now() - absl::UnixEpoch() -
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace gemmd::server
