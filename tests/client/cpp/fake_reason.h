// Refusals as the daemon words and signs them.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cpp/errors.h"

namespace gemmd::client {

inline absl::Status Signed(absl::Status status, absl::string_view reason) {
  SetReason(status, reason);
  return status;
}

inline absl::Status Gone(absl::string_view what) {
  return Signed(absl::NotFoundError(absl::StrCat("no such ", what)), "GONE");
}

// What gRPC itself says of a connection that went away.
inline absl::Status Torn() { return absl::UnavailableError("Socket closed"); }

}  // namespace gemmd::client
