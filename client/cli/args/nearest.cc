#include "client/cli/args/nearest.h"

#include <algorithm>
#include <numeric>

namespace gemmd::cli {
namespace {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances from a's prefix to each prefix of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::string_view Nearest(absl::string_view typed, const std::vector<absl::string_view>& known) {
  absl::string_view best;
  size_t best_distance = typed.size();
  for (absl::string_view name : known) {
    const size_t distance = EditDistance(typed.substr(0, 64), name);
    if (distance <= std::max<size_t>(2, name.size() / 3) && distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace gemmd::cli
