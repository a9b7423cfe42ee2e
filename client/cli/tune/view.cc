#include "client/cli/tune/view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/document.h"

namespace gemmd::cli {
namespace {

constexpr int kBarWidth = 30;

std::string ShapeName(const v1::TuneShape& shape) {
  return absl::StrCat(shape.m(), "x", shape.n(), "x", shape.k(), " ", NameOf(shape.output_dtype()));
}

std::string Micros(double seconds) { return absl::StrFormat("%.2f us", seconds * 1e6); }

bool IsFaster(const v1::TunedShape& tuned) {
  return tuned.skipped().empty() && tuned.kernel() != tuned.kernel_before() &&
         tuned.seconds() < tuned.seconds_before();
}

}  // namespace

void TuneView::Take(const v1::TuneProgress& progress) {
  device_ = progress.device();
  shapes_ = progress.shapes();
  if (!progress.has_tuned()) return;
  faster_ += IsFaster(progress.tuned());
  tuned_.push_back(progress.tuned());
}

std::string TuneView::Bar() const {
  const int done = static_cast<int>(tuned_.size());
  const int filled = shapes_ > 0 ? std::min(kBarWidth, done * kBarWidth / shapes_) : 0;
  return absl::StrCat(device_, " [", std::string(filled, '#'), std::string(kBarWidth - filled, ' '),
                      "] ", done, " of ", shapes_, " shapes, ", faster_, " faster");
}

std::string TuneView::Text() const {
  std::vector<std::vector<std::string>> rows = {
      {"SHAPE", "BEFORE", "BY", "TIME", "AFTER", "TIME", "GAIN"}};
  for (const v1::TunedShape& tuned : tuned_) {
    std::vector<std::string> row = {ShapeName(tuned.shape())};
    if (tuned.skipped().empty()) {
      const double gain = tuned.seconds() > 0 ? tuned.seconds_before() / tuned.seconds() : 1;
      row.insert(row.end(), {tuned.kernel_before(), NameOf(tuned.reason_before()),
                             Micros(tuned.seconds_before()), tuned.kernel(),
                             Micros(tuned.seconds()), absl::StrFormat("%.2fx", gain)});
    } else {
      row.insert(row.end(), {"-", "-", "-", absl::StrCat("skipped: ", tuned.skipped()), "-", "-"});
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(Table(rows), tuned_.size(), " of ", shapes_, " shapes measured on ", device_,
                      ", ", faster_, " run on a faster kernel now\n");
}

Json TuneView::Document() const {
  Json shapes = Json::array();
  for (const v1::TunedShape& tuned : tuned_) {
    Json row = DocumentOf(tuned.shape());
    row.update(DocumentOf(tuned));
    row.erase("shape");
    if (tuned.skipped().empty()) row.erase("skipped");
    shapes.push_back(std::move(row));
  }
  return {{"device", device_}, {"shapes", shapes_}, {"faster", faster_}, {"tuned", shapes}};
}

}  // namespace gemmd::cli
