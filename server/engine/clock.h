// Time comes through a Clock, so that tests decide when a session expires.

#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd::server {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace gemmd::server
