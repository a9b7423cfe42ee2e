// Labels that clients choose: short, printable, safe to show and to log.

#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace gemmd::server {

inline constexpr int kMaxLabelBytes = 64;

// At most 64 bytes of printable ASCII; may be empty.
absl::Status CheckLabel(std::string_view label);

}  // namespace gemmd::server
