#include "server/last_resort.h"

#include <unistd.h>

#include "absl/time/clock.h"

namespace gemmd::server {

LastResort::~LastResort() {
  {
    absl::MutexLock lock(&mutex_);
    off_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LastResort::Set(absl::Time when, ExitStatus status) {
  absl::MutexLock lock(&mutex_);
  when_ = when;
  status_ = status;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void LastResort::Run() {
  absl::MutexLock lock(&mutex_);
  while (!off_ && absl::Now() < when_) {
    const absl::Time planned = when_;
    const auto changed = [this, planned]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return off_ || when_ != planned;
    };
    mutex_.AwaitWithDeadline(absl::Condition(&changed), planned);
  }
  if (off_) return;
  log_.Warning("ended_by_force", {{"status", static_cast<int64_t>(status_)}});
  log_.Flush(absl::Milliseconds(200));  // its own thread writes it, and ends with the process
  _exit(status_);
}

}  // namespace gemmd::server
