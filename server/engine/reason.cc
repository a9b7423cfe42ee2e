#include "server/engine/reason.h"

#include "absl/strings/cord.h"
#include "kernels/fault.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {
constexpr absl::string_view kPayload = "gemmd.reason";
}  // namespace

absl::Status WithReason(absl::Status status, std::string_view reason) {
  if (!status.ok() && !status.GetPayload(kPayload))
    status.SetPayload(kPayload, absl::Cord(Text(reason)));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  if (status.ok()) return "";
  if (auto payload = status.GetPayload(kPayload)) return std::string(*payload);
  if (kernels::IsDeviceFault(status)) return std::string(reason::kDeviceFenced);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return std::string(reason::kInvalid);
    case absl::StatusCode::kUnimplemented:
      return std::string(reason::kNoKernel);
    case absl::StatusCode::kCancelled:
      return std::string(reason::kCancelled);
    case absl::StatusCode::kDeadlineExceeded:
      return std::string(reason::kDeadline);
    default:
      return absl::StatusCodeToString(status.code());
  }
}

}  // namespace gemmd::server
