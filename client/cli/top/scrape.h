// The daemon's metrics endpoint as a client reads it.

#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::cli {

// One series of the exposition: gemmd_queue_depth{device="cpu:0",priority="high"} 3.
struct MetricSample {
  std::map<std::string, std::string> labels;
  double value = 0;
};
// By the metric's name.
using MetricSamples = std::multimap<std::string, MetricSample>;

// GET /metrics of "127.0.0.1:8471". UNAVAILABLE when nobody answers within 3 s, or not with
// metrics.
absl::StatusOr<MetricSamples> Scrape(const std::string& address);

// Prometheus' text format. Lines that are none are left out.
MetricSamples ParseMetrics(absl::string_view text);

}  // namespace gemmd::cli
