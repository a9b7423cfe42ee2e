#include "kernels/bench/chart.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/summary.h"
#include "kernels/bench/svg.h"

namespace gemmd::kernels::bench {
namespace {

// Pixels of the drawing's own units.
constexpr double kLabelWidth = 150;
constexpr double kPlotWidth = 640;
constexpr double kRight = 60;
constexpr double kTop = 78;
constexpr double kBar = 7;
constexpr double kGap = 6;       // between shapes
constexpr double kPartGap = 14;  // more where m changes
constexpr double kBottom = 40;
constexpr double kMaxShare = 1.1;  // the axis' end; the floor is measured too, so 1 can be passed

struct Series {
  const char* name;
  const char* colour;
  double ShapeResult::*us;
};
constexpr Series kSeries[] = {
    {"gemmd", "#0b6e4f", &ShapeResult::us},
    {"cuBLASLt FP8 tensor-wise", "#f2a541", &ShapeResult::cublaslt_tensorwise_us},
    {"cuBLASLt FP8 block-scaled", "#5b8def", &ShapeResult::cublaslt_block_us},
    {"cuBLASLt BF16", "#b8bfc6", &ShapeResult::cublaslt_bf16_us},
};

double X(double share) { return kLabelWidth + std::min(share, kMaxShare) / kMaxShare * kPlotWidth; }

void AddBar(std::string& svg, double y, double share, const char* colour, bool labelled) {
  absl::StrAppend(&svg,
                  absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                                  "fill=\"%s\"/>\n",
                                  kLabelWidth, y, X(share) - kLabelWidth, kBar - 1, colour));
  if (labelled) {
    AddSvgText(svg, X(share) + 4, y + kBar - 0.5, "start", absl::StrFormat("%.0f", share * 100));
  }
}

void AddLegend(std::string& svg) {
  double x = kLabelWidth;
  for (const Series& series : kSeries) {
    absl::StrAppend(&svg, absl::StrFormat("<rect x=\"%.1f\" y=\"48\" width=\"10\" height=\"10\" "
                                          "fill=\"%s\"/>\n",
                                          x, series.colour));
    AddSvgText(svg, x + 14, 57, "start", series.name);
    x += 30 + 6.2 * std::string_view(series.name).size();
  }
}

void AddAxis(std::string& svg, double bottom) {
  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = X(percent / 100.0);
    absl::StrAppend(
        &svg, absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                              "stroke=\"%s\"/>\n",
                              x, kTop - 4, x, bottom, percent == 100 ? "#404040" : "#e0e0e0"));
    AddSvgText(svg, x, bottom + 14, "middle", absl::StrCat(percent, " %"));
  }
}

}  // namespace

std::string Chart(const RunResult& run) {
  std::vector<const ShapeResult*> timed;
  for (const ShapeResult& r : run.shapes) {
    if (r.outcome == Outcome::kOk && r.us > 0 && r.floor_us > 0) timed.push_back(&r);
  }
  const double best_rate = Summarize(run).best_tensorwise_tflops;
  std::string bars;
  double y = kTop;
  for (size_t i = 0; i < timed.size(); ++i) {
    const ShapeResult& r = *timed[i];
    if (i > 0) y += timed[i - 1]->shape.m == r.shape.m ? kGap : kPartGap;
    AddSvgText(bars, kLabelWidth - 8, y + std::size(kSeries) * kBar / 2 + 3, "end",
               ToString(r.shape));
    const double floor_us = ShareOfFloor(r, best_rate) * r.us;
    for (const Series& series : kSeries) {
      const double us = r.*series.us;
      if (us > 0) AddBar(bars, y, floor_us / us, series.colour, series.us == &ShapeResult::us);
      y += kBar;
    }
  }
  const double height = y + kBottom;
  const double width = kLabelWidth + kPlotWidth + kRight;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"10\" fill=\"#202020\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      width, height);
  absl::StrAppend(&svg, "<g font-size=\"14\" font-weight=\"bold\">\n");
  AddSvgText(svg, kLabelWidth, 20, "start", "Percent of the floor, cold L2: longer is better");
  absl::StrAppend(&svg, "</g>\n");
  AddSvgText(svg, kLabelWidth, 36, "start",
             absl::StrCat(run.gpu, ", driver ", run.driver, ", ", run.date,
                          run.commit.empty() ? "" : absl::StrCat(", commit ", run.commit)));
  AddLegend(svg);
  AddAxis(svg, y + 2);
  absl::StrAppend(&svg, bars, "</svg>\n");
  return svg;
}

}  // namespace gemmd::kernels::bench
