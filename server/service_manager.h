// Telling systemd, or whoever starts services as it does, how far gemmd is: a datagram to the
// socket that the environment's NOTIFY_SOCKET names (sd_notify(3), without its library).

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::server {

inline constexpr absl::string_view kServing = "READY=1";
inline constexpr absl::string_view kDraining = "STOPPING=1";

// OK when nobody has asked to be told. UNAVAILABLE, with the socket's name and the cause, when
// somebody has and does not listen.
absl::Status TellServiceManager(absl::string_view state);

}  // namespace gemmd::server
