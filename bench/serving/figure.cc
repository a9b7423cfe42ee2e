#include "bench/serving/figure.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::bench {
namespace {

std::string Number(double value, const std::string& unit) {
  return absl::StrCat(absl::StrFormat("%.4g", value), unit.empty() ? "" : " ", unit);
}

}  // namespace

Figure Missing(Figure figure, const absl::Status& status) {
  figure.missing = std::string(status.message());
  return figure;
}

std::string Verdict(const Figure& figure) {
  if (!figure.seen.has_value()) return "none";
  return figure.ok() ? "ok" : "short";
}

cli::Json FigureJson(const Figure& figure) {
  return {{"what", figure.what},
          {"unit", figure.unit},
          {"wanted", figure.wanted},
          {"wanted_is", figure.at_most ? "at most" : "at least"},
          {"seen", figure.seen.has_value() ? cli::Json(*figure.seen) : cli::Json()},
          {"verdict", Verdict(figure)},
          {"missing", figure.missing.empty() ? cli::Json() : cli::Json(figure.missing)},
          {"detail", figure.detail}};
}

std::string FigureTable(const std::vector<Figure>& figures) {
  std::vector<std::vector<std::string>> rows = {{"figure", "wanted", "seen", "", "what"}};
  for (const Figure& figure : figures) {
    const std::string wanted =
        absl::StrCat(figure.at_most ? "<= " : ">= ", Number(figure.wanted, figure.unit));
    rows.push_back({figure.key, wanted,
                    figure.seen.has_value() ? Number(*figure.seen, figure.unit) : "-",
                    Verdict(figure), figure.seen.has_value() ? figure.what : figure.missing});
  }
  return cli::Table(rows);
}

}  // namespace gemmd::bench
