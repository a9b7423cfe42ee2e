// The shapes of `gemmctl tune --shapes`.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gemmd/v1/admin_service.pb.h"

namespace gemmd::cli {

// "64x4096x7168" is m, n and k, "4096x7168" a weight with the usual numbers of rows; several with
// commas between. Adds them to `request`. INVALID_ARGUMENT names the part that is none.
absl::Status AddShapes(absl::string_view text, v1::TuneRequest& request);

}  // namespace gemmd::cli
