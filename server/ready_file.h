// Telling whoever started gemmd that it serves, and where.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace gemmd::server {

// One address a line; the metrics address last, as "metrics ADDRESS", unless it is empty.
std::string ReadyText(absl::Span<const std::string> addresses, const std::string& metrics_address);

// Whole or not at all: a reader never sees half a list. INTERNAL with the cause when it cannot be
// written, and then nothing is left behind.
absl::Status WriteReadyFile(const std::string& path, const std::string& text);

// Writes and closes. INTERNAL when nobody reads.
absl::Status WriteReadyFd(int fd, const std::string& text);

}  // namespace gemmd::server
