// The known name nearest to a mistyped one.

#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace gemmd::cli {

// By edit distance; "" when every name is further away than a third of its length (at least 2 edits
// are allowed): a wild guess confuses more than it helps.
absl::string_view Nearest(absl::string_view typed, const std::vector<absl::string_view>& known);

}  // namespace gemmd::cli
