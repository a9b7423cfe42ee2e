// A ratio of two measurements taken in turns, so that the machine's drift hits both alike.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args/output.h"

namespace gemmd::bench {

// What a ratio is and must be.
struct RatioSpec {
  absl::string_view key;     // stable: scripts read it
  absl::string_view ours;    // what is above the line
  absl::string_view theirs;  // and below it
  absl::string_view unit;    // of both
  double target = 0;
  bool at_most = false;  // the ratio must not be above the target; otherwise not below
};

struct Ratio {
  RatioSpec spec;
  std::vector<double> ours;  // a figure a round
  std::vector<double> theirs;
  std::string missing;  // why there is none; empty when there is

  bool measured() const { return missing.empty(); }
  double value() const;  // the median of the rounds' ours over theirs
  bool pass() const;     // true as well when there is none: nothing was missed
};

using Measurement = std::function<absl::StatusOr<double>()>;

// `rounds` times ours and theirs in turns, after one of each that is not counted. The first failure
// makes it missing.
Ratio MeasureRatio(const RatioSpec& spec, int rounds, const Measurement& ours,
                   const Measurement& theirs);

cli::Json RatioJson(const Ratio& ratio);  // value, target, pass, the figures and their spread
std::string RatioTable(const std::vector<Ratio>& ratios);

}  // namespace gemmd::bench
