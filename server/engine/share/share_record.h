// A few bytes in a memfd, for what must cross the share socket and is no descriptor: the socket
// carries descriptors alone, and whoever can fetch one shares the host.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

inline constexpr size_t kMaxRecordBytes = 4096;

// A memfd that holds `record` and cannot be changed any more. RESOURCE_EXHAUSTED when the system
// has no descriptor or memory left.
absl::StatusOr<UniqueFd> WriteRecord(std::string_view record);

// What a client put into `fd`. FAILED_PRECONDITION unless it is a memfd sealed against shrinking,
// of at most kMaxRecordBytes: reading another kind of file could block for good.
absl::StatusOr<std::string> ReadRecord(int fd);

}  // namespace gemmd::server
