// The file that keeps what a device's tuner has measured.

#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gemmd::server {

// NOT_FOUND when there is none; INVALID_ARGUMENT for more than 16 MiB or what is no file;
// FAILED_PRECONDITION, with the system's reason, when it cannot be read.
absl::StatusOr<std::string> ReadTuningFile(const std::string& path);

// Whoever reads meanwhile, or after a crash, finds the old text or the new one, whole.
// FAILED_PRECONDITION, with the system's reason and the remedy; nothing is left then but what was.
absl::Status WriteTuningFile(const std::string& path, std::string_view text);

}  // namespace gemmd::server
