#include "client/cpp/health.h"

#include "gemmd/v1/wire.h"

namespace gemmd::client {

absl::string_view Name(Health health) {
  switch (health) {
    case Health::kServing:
      return "serving";
    case Health::kNotServing:
      return "not serving";
    case Health::kServiceUnknown:
      return "service unknown";
    case Health::kUnknown:
      break;
  }
  return "unknown";
}

std::string EncodeHealthRequest(absl::string_view service) {
  std::string request;
  if (!service.empty()) wire::AppendBytes(request, 1, service);
  return request;
}

absl::StatusOr<Health> DecodeHealthResponse(absl::string_view response) {
  if (response.empty()) return Health::kUnknown;  // proto3 leaves out a 0
  if (response.size() == 2 && response[0] == (1 << 3 | wire::kVarint) && response[1] >= 0 &&
      response[1] <= static_cast<int>(Health::kServiceUnknown)) {
    return static_cast<Health>(response[1]);
  }
  return absl::InternalError("the health check's answer is not a HealthCheckResponse");
}

}  // namespace gemmd::client
