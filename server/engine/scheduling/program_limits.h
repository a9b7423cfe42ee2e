// What a tenant's limits say of one program: how many ops, how much inline data, how long.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

// Of the data of its Write ops and its Read ops; a negative size is more than any limit.
// INVALID_ARGUMENT without an op, RESOURCE_EXHAUSTED over a limit.
absl::Status CheckSize(const Tenant& tenant, size_t ops, absl::Span<const int64_t> in,
                       absl::Span<const int64_t> out);

// Of the time that it is estimated to take the device. RESOURCE_EXHAUSTED over the limit.
absl::Status CheckTime(const Tenant& tenant, std::string_view device, double seconds);

}  // namespace gemmd::server
