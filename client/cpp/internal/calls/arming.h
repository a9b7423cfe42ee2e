// How a session arms plans: the region of slots that it shares with the daemon, made by the first.

#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/armed/region.h"
#include "client/cpp/armed.h"
#include "client/cpp/options.h"

namespace gemmd::client {

class SessionCore;

// Thread-safe.
class Arming {
 public:
  // FAILED_PRECONDITION when the daemon is on another host or shares nothing.
  absl::StatusOr<std::shared_ptr<armed::Region>> Region(const SessionCore& session,
                                                        const CallOptions& options);

 private:
  absl::Mutex mu_;
  std::shared_ptr<armed::Region> region_ ABSL_GUARDED_BY(mu_);  // shared with the slots
};

}  // namespace gemmd::client
