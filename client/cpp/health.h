// grpc.health.v1's Check, whose two messages are small enough to write and read by hand.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"

namespace gemmd::client {

// HealthCheckRequest {string service = 1}.
std::string EncodeHealthRequest(absl::string_view service);

// HealthCheckResponse {ServingStatus status = 1}. INTERNAL for anything else.
absl::StatusOr<Health> DecodeHealthResponse(absl::string_view response);

}  // namespace gemmd::client
