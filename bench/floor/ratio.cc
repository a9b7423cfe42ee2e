#include "bench/floor/ratio.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/percentiles.h"

namespace gemmd::bench {

double Ratio::value() const {
  std::vector<double> values;
  for (size_t i = 0; i < ours.size() && i < theirs.size(); ++i) {
    values.push_back(theirs[i] == 0 ? 0 : ours[i] / theirs[i]);
  }
  return Median(values);
}

bool Ratio::pass() const {
  if (!measured()) return true;
  return spec.at_most ? value() <= spec.target : value() >= spec.target;
}

Ratio MeasureRatio(const RatioSpec& spec, int rounds, const Measurement& ours,
                   const Measurement& theirs) {
  Ratio ratio{.spec = spec};
  for (int round = 0; round <= rounds; ++round) {
    for (const auto& [measure, figures] :
         {std::pair(&ours, &ratio.ours), std::pair(&theirs, &ratio.theirs)}) {
      absl::StatusOr<double> figure = (*measure)();
      if (!figure.ok()) {
        ratio.missing = std::string(figure.status().message());
        return ratio;
      }
      if (round > 0) figures->push_back(*figure);
    }
  }
  return ratio;
}

cli::Json RatioJson(const Ratio& ratio) {
  cli::Json document = {{"value", nullptr},
                        {"target", ratio.spec.target},
                        {"target_is", ratio.spec.at_most ? "at most" : "at least"},
                        {"pass", nullptr},
                        {"unit", std::string(ratio.spec.unit)},
                        {"ours", std::string(ratio.spec.ours)},
                        {"ours_median", Median(ratio.ours)},
                        {"ours_spread", Spread(ratio.ours)},
                        {"ours_rounds", ratio.ours},
                        {"theirs", std::string(ratio.spec.theirs)},
                        {"theirs_median", Median(ratio.theirs)},
                        {"theirs_spread", Spread(ratio.theirs)},
                        {"theirs_rounds", ratio.theirs},
                        {"missing", nullptr}};
  if (ratio.measured()) {
    document["value"] = ratio.value();
    document["pass"] = ratio.pass();
  } else {
    document["missing"] = ratio.missing;
  }
  return document;
}

std::string RatioTable(const std::vector<Ratio>& ratios) {
  std::vector<std::vector<std::string>> rows = {
      {"ratio", "value", "target", "", "ours", "theirs", "what"}};
  const auto figure = [](const std::vector<double>& rounds) {
    return absl::StrFormat("%.4g (+-%.0f %%)", Median(rounds), Spread(rounds) * 50);
  };
  for (const Ratio& ratio : ratios) {
    const std::string target = absl::StrCat(ratio.spec.at_most ? "<= " : ">= ", ratio.spec.target);
    if (!ratio.measured()) {
      rows.push_back({std::string(ratio.spec.key), "-", target, "none", "", "", ratio.missing});
      continue;
    }
    rows.push_back(
        {std::string(ratio.spec.key), absl::StrFormat("%.2f", ratio.value()), target,
         ratio.pass() ? "pass" : "FAIL", figure(ratio.ours), figure(ratio.theirs),
         absl::StrCat(ratio.spec.ours, " / ", ratio.spec.theirs, ", ", ratio.spec.unit)});
  }
  return cli::Table(rows);
}

}  // namespace gemmd::bench
