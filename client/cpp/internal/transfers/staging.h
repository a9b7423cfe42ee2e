// A HOST_SHARED buffer of the library's own, through which bytes reach a device's other buffers by
// Copy ops.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/options.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class SessionCore;

struct StagingMemory {
  Handle buffer;
  SharedMemory memory;  // mapped for writing
};

// On `device`; empty: the session's. Deleted with the session, or by its reaper. `options` hold for
// each of the calls that it takes.
absl::StatusOr<StagingMemory> MakeStaging(const SessionCore& session, const std::string& device,
                                          int64_t size_bytes, absl::string_view label,
                                          const CallOptions& options);

}  // namespace gemmd::client
