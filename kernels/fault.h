// Device faults: the one error after which a device serves nothing more in this process. Told from
// other causes of UNAVAILABLE by a mark in the status, which survives being passed on.

#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace gemmd::kernels {

// UNAVAILABLE, marked.
absl::Status DeviceFault(std::string_view message);
bool IsDeviceFault(const absl::Status& status);

}  // namespace gemmd::kernels
