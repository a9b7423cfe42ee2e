// TuningPace: when background measurements may go on, so that they take no more than their share of
// a device's time.

#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace gemmd::server {

// A measurement of t seconds is followed by t / share seconds without one. Behind a device that
// nobody else has used for kQuiet the pause is shorter, by a share kQuietFactor times as large.
class TuningPace {
 public:
  static constexpr absl::Duration kQuiet = absl::Milliseconds(100);
  static constexpr double kQuietFactor = 20;
  static constexpr double kMostQuietShare = 0.5;

  explicit TuningPace(double share = 1) : share_(share) {}

  // A measurement that took the device `seconds` has ended.
  void Took(absl::Time now, double seconds);
  // How long to wait before asking again; zero or less: go on. `others` counts the programs that
  // the device has completed for anybody else.
  absl::Duration ToWait(absl::Time now, int64_t others);

 private:
  double share_;
  double seconds_ = 0;  // of the last measurement
  absl::Time ended_ = absl::InfinitePast();
  int64_t others_ = -1;
  absl::Time used_ = absl::InfinitePast();  // when `others` was last seen to grow
};

}  // namespace gemmd::server
