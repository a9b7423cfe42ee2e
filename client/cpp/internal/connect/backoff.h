// The pauses between the tries of one call.

#pragma once

#include <algorithm>
#include <optional>

#include "absl/random/random.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"

namespace gemmd::client {

class Backoff {
 public:
  explicit Backoff(const RetryOptions& options)
      : options_(options), next_(options.initial_backoff) {}

  // How long to wait before the next try; none when the tries are used up or `deadline` would pass
  // meanwhile. Between half and all of a step that doubles: clients cut together do not come back
  // together.
  std::optional<absl::Duration> Next(absl::Time deadline) {
    if (++tries_ >= options_.max_attempts) return std::nullopt;
    thread_local absl::InsecureBitGen random;
    const absl::Duration pause = next_ * absl::Uniform(random, 0.5, 1.0);
    next_ = std::min(next_ * 2, options_.max_backoff);
    if (absl::Now() + pause >= deadline) return std::nullopt;
    return pause;
  }

  // After progress: the next break starts from the beginning.
  void Reset() {
    tries_ = 0;
    next_ = options_.initial_backoff;
  }

 private:
  RetryOptions options_;
  absl::Duration next_;
  int tries_ = 0;
};

}  // namespace gemmd::client
