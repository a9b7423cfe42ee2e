// What a fork inherits: gRPC's sockets and locks, but none of its threads. A child that called, or
// destroyed a connection, would hang, and take the parent's answers. So it is refused calls, and
// what it has of the parent's is left as it is.

#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace gemmd::client {

// Before a connection is made: from now on forks are noticed.
void WatchForks();

// Whether this process was forked from one that had connected.
bool Forked();

// FAILED_PRECONDITION (FORKED) if so.
absl::Status CheckForked();

// As std::make_shared; a forked child does not destroy it.
template <typename T, typename... Args>
std::shared_ptr<T> MakeUnlessForked(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* made) {
    if (!Forked()) delete made;
  });
}

}  // namespace gemmd::client
