#include "client/cli/tune/shapes.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/args/printable.h"

namespace gemmd::cli {

absl::Status AddShapes(absl::string_view text, v1::TuneRequest& request) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, 'x');
    int64_t extents[3] = {0, 0, 0};
    bool good = words.size() == 2 || words.size() == 3;
    for (size_t i = 0; good && i < words.size(); ++i) {
      int64_t& extent = extents[3 - words.size() + i];
      good = absl::SimpleAtoi(words[i], &extent) && extent > 0;
    }
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shapes: '", Printable(part.substr(0, 64)),
                       "' is no shape; give MxNxK, or NxK for the usual numbers of rows, with "
                       "commas between several"));
    }
    v1::TuneShape* shape = request.add_shapes();
    shape->set_m(extents[0]);
    shape->set_n(extents[1]);
    shape->set_k(extents[2]);
  }
  return absl::OkStatus();
}

}  // namespace gemmd::cli
