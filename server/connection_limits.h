// What connections may take of this process: from the config and, where it leaves that open, from
// the machine.

#pragma once

#include <cstdint>

#include "server/engine/config.h"
#include "server/guard/connections.h"

namespace gemmd::server {

guard::ConnectionLimits LimitsOf(const Config& config);

// Bytes that gRPC may hold of what it received, all listeners together. Beyond it gRPC cancels
// calls.
int64_t ReceiveQuotaBytes(const ConnectionsConfig& config);

}  // namespace gemmd::server
