#include "kernels/bench/ladder_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/svg.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

// A rung beside what it is compared with.
struct Step {
  const LadderRow* row = nullptr;
  double times_before = 0;    // over the rate of the rung in front; 0 without one
  double share_of_peers = 0;  // of cuBLASLt's rate for the same shape and type; 0 where unknown
};

bool IsPeer(const LadderRow& row) { return absl::StartsWith(row.kernel, "cublaslt"); }

double PeerRate(const RunResult& run, const LadderRow& of) {
  for (const LadderRow& row : run.ladder) {
    if (IsPeer(row) && row.shape == of.shape && row.fp8 == of.fp8) return row.tflops();
  }
  return 0;
}

std::vector<Step> StepsOf(const RunResult& run) {
  std::vector<Step> steps;
  const LadderRow* before = nullptr;
  for (const LadderRow& row : run.ladder) {
    Step step{&row};
    const double peer = PeerRate(run, row);
    if (peer > 0 && row.took == row.shape) step.share_of_peers = row.tflops() / peer;
    if (before != nullptr && before->shape == row.shape && before->tflops() > 0 && !IsPeer(row)) {
      step.times_before = row.tflops() / before->tflops();
    }
    if (!IsPeer(row)) before = &row;
    steps.push_back(step);
  }
  return steps;
}

std::string Times(double times) {
  return times > 0 ? absl::StrFormat("%6.2f x", times) : "       -";
}
std::string Percent(double share) {
  return share > 0 ? absl::StrFormat("%5.1f %%", share * 100) : "      -";
}
std::string Rate(double tflops) {
  return tflops < 10 ? absl::StrFormat("%.2f", tflops) : absl::StrFormat("%.0f", tflops);
}

std::string TableRow(const Step& step) {
  const LadderRow& row = *step.row;
  if (row.outcome != Outcome::kOk) {
    return absl::StrFormat("%-28s  %s: %s\n", row.kernel, Text(Name(row.outcome)), row.message);
  }
  std::string idea = row.idea;
  if (row.took != row.shape) absl::StrAppend(&idea, " (of ", ToString(row.took), ", all it takes)");
  const double spread = row.us > 0 ? (row.us_p90 - row.us_p10) / row.us * 100 : 0;
  return absl::StrFormat("%-28s %9.1f %5.1f%% %8s %s %s  %8.1e  %s\n", row.kernel, row.us, spread,
                         Rate(row.tflops()), Times(step.times_before), Percent(step.share_of_peers),
                         row.calc_diff, idea);
}

// Pixels of the drawing's own units.
constexpr double kLadderLabelWidth = 190;
constexpr double kLadderPlotWidth = 560;
constexpr double kLadderRight = 130;
constexpr double kLadderTop = 58;
constexpr double kLadderBar = 14;
constexpr double kLadderPart = 30;  // in front of each shape: its heading
constexpr double kLadderBottom = 16;

const char* Colour(const LadderRow& row) {
  if (IsPeer(row)) return "#b8bfc6";
  return row.fp8 ? "#5b8def" : "#0b6e4f";
}

void AddBar(std::string& svg, double y, const Step& step, double most) {
  const LadderRow& row = *step.row;
  const double width = row.tflops() / most * kLadderPlotWidth;
  AddSvgText(svg, kLadderLabelWidth - 8, y + kLadderBar - 4, "end", row.idea);
  absl::StrAppend(&svg, absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                                        "height=\"%.1f\" fill=\"%s\"/>\n",
                                        kLadderLabelWidth, y, width, kLadderBar - 3, Colour(row)));
  std::string label = Rate(row.tflops());
  if (step.times_before > 0) absl::StrAppendFormat(&label, "   x %.2f", step.times_before);
  if (row.took != row.shape) absl::StrAppend(&label, "   of ", ToString(row.took));
  AddSvgText(svg, kLadderLabelWidth + width + 5, y + kLadderBar - 4, "start", label);
}

}  // namespace

std::string LadderTable(const RunResult& run) {
  std::string out;
  const LadderRow* before = nullptr;
  for (const Step& step : StepsOf(run)) {
    if (before == nullptr || before->shape != step.row->shape) {
      absl::StrAppendFormat(&out, "\n%-28s %9s %6s %8s %8s %7s  %8s\n", ToString(step.row->shape),
                            "us", "spread", "TFLOP/s", "before", "cuBLASLt", "diff");
    }
    before = step.row;
    absl::StrAppend(&out, TableRow(step));
  }
  return out;
}

std::string LadderChart(const RunResult& run) {
  std::string bars;
  double y = kLadderTop;
  double most = 1;
  for (const LadderRow& row : run.ladder) most = std::max(most, row.tflops());
  const LadderRow* before = nullptr;
  for (const Step& step : StepsOf(run)) {
    if (step.row->us <= 0) continue;
    if (before == nullptr || before->shape != step.row->shape) {
      y += kLadderPart;
      absl::StrAppend(&bars, "<g font-weight=\"bold\">\n");
      AddSvgText(bars, kLadderLabelWidth, y - 6, "start", ToString(step.row->shape));
      absl::StrAppend(&bars, "</g>\n");
    }
    before = step.row;
    AddBar(bars, y, step, most);
    y += kLadderBar;
  }
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"10\" fill=\"#202020\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kLadderLabelWidth + kLadderPlotWidth + kLadderRight, y + kLadderBottom);
  absl::StrAppend(&svg, "<g font-size=\"14\" font-weight=\"bold\">\n");
  AddSvgText(svg, kLadderLabelWidth, 20, "start", "The ladder: TFLOP/s, and times the rung before");
  absl::StrAppend(&svg, "</g>\n");
  AddSvgText(svg, kLadderLabelWidth, 36, "start",
             absl::StrCat(run.gpu, ", driver ", run.driver, ", ", run.date,
                          run.commit.empty() ? "" : absl::StrCat(", commit ", run.commit)));
  AddSvgText(svg, kLadderLabelWidth, 52, "start",
             "green FP16, blue FP8 with block scales, grey cuBLASLt");
  absl::StrAppend(&svg, bars, "</svg>\n");
  return svg;
}

}  // namespace gemmd::kernels::bench
