#include "client/cpp/internal/connect/forked.h"

#include <pthread.h>

#include <atomic>

#include "client/cpp/errors.h"

namespace gemmd::client {
namespace {

std::atomic<bool> in_child = false;

}  // namespace

void WatchForks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { in_child = true; });
  (void)watched;
}

bool Forked() { return in_child.load(std::memory_order_relaxed); }

absl::Status CheckForked() {
  if (!Forked()) return absl::OkStatus();
  absl::Status status = absl::FailedPreconditionError(
      "this process was forked from one that has connected to a gemmd server, and gRPC breaks in "
      "both if it calls, too: fork before the first Client::Connect, or exec");
  SetReason(status, "FORKED");
  return status;
}

}  // namespace gemmd::client
