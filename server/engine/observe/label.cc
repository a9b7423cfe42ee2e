#include "server/engine/observe/label.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::Status CheckLabel(std::string_view label) {
  if (label.size() > kMaxLabelBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("label has ", label.size(), " bytes, limit ", kMaxLabelBytes, "; shorten it"));
  }
  const auto bad = std::find_if_not(label.begin(), label.end(), absl::ascii_isprint);
  if (bad != label.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("label has byte 0x", absl::Hex(static_cast<unsigned char>(*bad)), " at ",
                     bad - label.begin(), "; use printable ASCII"));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::server
