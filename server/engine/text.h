// Debian's Abseil is built with its own absl::string_view, which StrCat and Cord take and
// std::string_view is not.

#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace gemmd::server {

inline absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace gemmd::server
