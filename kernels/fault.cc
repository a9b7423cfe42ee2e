#include "kernels/fault.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {
constexpr absl::string_view kMark = "gemmd.device_fault";
}  // namespace

absl::Status DeviceFault(std::string_view message) {
  absl::Status status = absl::UnavailableError(Text(message));
  status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsDeviceFault(const absl::Status& status) { return status.GetPayload(kMark).has_value(); }

}  // namespace gemmd::kernels
