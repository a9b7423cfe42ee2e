// What moe_bench measures, on the terminal as it comes and in a file of figures.

#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/cuda/machine.h"

namespace gemmd::kernels::bench {

struct MoeRun {
  std::string suite = "all";
  std::string json, commit, only;
  int repeats = 12;
  int count = 12;
  uint64_t seed = 1;

  bool broad() const { return suite == "broad-fit" || suite == "broad-judge"; }
};

struct Figure {
  int line = 0;
  std::string name, unit, wanted;
  double value = 0;
  bool ok = true;
};

// What is measured so far, on the terminal and in a file.
class Report {
 public:
  Report(const MoeRun& run, const Machine& machine) : run_(run), machine_(machine) {}

  // `most`: the largest value that is wanted; 0: none.
  void Add(int line, const std::string& name, double value, const std::string& unit, double most) {
    Figure figure{line, name, unit, most > 0 ? absl::StrCat("<= ", most) : "", value};
    figure.ok = most == 0 || value <= most;
    std::printf("%-76s %10.3f %-8s %s%s\n", name.c_str(), value, unit.c_str(),
                figure.wanted.c_str(), figure.ok ? "" : " MISSED");
    std::fflush(stdout);
    figures_.push_back(std::move(figure));
    if (!run_.json.empty()) std::ofstream(run_.json) << Text();
  }
  void Wrong(const std::string& name, const absl::Status& status) {
    right_ = false;
    std::printf("%-76s %s\n", name.c_str(), std::string(status.message()).c_str());
    std::fflush(stdout);
  }
  bool right() const { return right_; }

 private:
  std::string Text() const {
    std::string text = FiguresHead(machine_, run_.commit);
    for (size_t i = 0; i < figures_.size(); ++i) {
      const Figure& f = figures_[i];
      absl::StrAppendFormat(&text,
                            "  {\"line\": %d, \"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", "
                            "\"wanted\": %s, \"ok\": %s}%s\n",
                            f.line, f.name, f.value, f.unit,
                            f.wanted.empty() ? "null" : absl::StrCat("\"", f.wanted, "\""),
                            f.ok ? "true" : "false", i + 1 < figures_.size() ? "," : "");
    }
    return absl::StrCat(text, " ]}\n");
  }

  const MoeRun& run_;
  const Machine& machine_;
  std::vector<Figure> figures_;
  bool right_ = true;
};

}  // namespace gemmd::kernels::bench
