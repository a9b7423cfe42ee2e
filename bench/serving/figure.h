// One measured figure of the serving suite, beside what is wanted of it.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/args/output.h"

namespace gemmd::bench {

struct Figure {
  std::string key;   // stable: scripts read it
  std::string what;  // a line for people
  std::string unit;  // of `wanted` and `seen`; empty for a ratio
  double wanted = 0;
  bool at_most = false;  // `seen` must not be above `wanted`; otherwise not below
  std::optional<double> seen;
  std::string missing;                     // why nothing was seen
  cli::Json detail = cli::Json::object();  // the figures that it was made of

  bool ok() const { return seen.has_value() && (at_most ? *seen <= wanted : *seen >= wanted); }
};

// The figure without its value, because of `status`.
Figure Missing(Figure figure, const absl::Status& status);

// "ok", "short", or "none" when it could not be measured.
std::string Verdict(const Figure& figure);
cli::Json FigureJson(const Figure& figure);
std::string FigureTable(const std::vector<Figure>& figures);

}  // namespace gemmd::bench
