// Text: names for error messages. A distribution's Abseil may have a string_view of its own, which
// StrCat takes instead of std::string_view; where the two are one type this does nothing.
//
//   absl::StrCat("a is ", Text(Name(dtype)))

#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace gemmd::kernels {

inline absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace gemmd::kernels
