// How far a call to a target travels: what may be said to it in plaintext depends on that.

#pragma once

#include "absl/strings/string_view.h"

namespace gemmd::client {

enum class Reach {
  kUnixSocket,  // "unix:/path", "unix-abstract:name"
  kLoopback,    // an address of this host's loopback, or "localhost"
  kNetwork,     // all else: other hosts, and names that may be anybody's
};

// Of a target as gRPC writes it. What is not understood is kNetwork.
Reach ReachOf(absl::string_view target);

}  // namespace gemmd::client
