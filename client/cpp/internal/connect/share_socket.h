// The daemon's Unix socket on which descriptors change hands; protocol in
// gemmd/v1/buffer_service.proto. One connection an exchange; each waits at most 5 s.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {

// `address`: "unix:/path" or "unix-abstract:name". UNAVAILABLE when nobody listens there, which for
// a daemon's own address means that it runs on another host.
absl::Status ProbeShareSocket(absl::string_view address);

// The descriptor that ExportBuffer's `token` stands for; the caller closes it. FAILED_PRECONDITION
// with the daemon's words when it refuses.
absl::StatusOr<int> FetchDescriptor(absl::string_view address, absl::string_view token);

// Hands `fd` over (it stays the caller's too) and returns the token for ImportBuffer.
absl::StatusOr<std::string> SendDescriptor(absl::string_view address, int fd);

}  // namespace gemmd::client
