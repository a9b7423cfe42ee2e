// Labels and names that clients choose: short, printable, safe to show and to log.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_LABEL_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_LABEL_H_

#include <string_view>

#include "absl/status/status.h"

namespace gemmd::server {

inline constexpr int kMaxLabelBytes = 64;
inline constexpr int kMaxNameBytes = 128;

// At most 64 bytes of printable ASCII; may be empty.
absl::Status CheckLabel(std::string_view label);
// A published buffer's name: 1 to 128 bytes of [A-Za-z0-9._/-].
absl::Status CheckName(std::string_view name);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_LABEL_H_
