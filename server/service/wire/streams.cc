#include "server/service/wire/streams.h"

#include <vector>

#include "server/engine/reason.h"

namespace gemmd::server {

absl::Status Draining() {
  return WithReason(absl::UnavailableError("the server is draining; go to another"),
                    reason::kDraining);
}

void StreamRegistry::Add(std::shared_ptr<DrainableStream> stream) {
  bool noticed = false, draining = false;
  absl::Time deadline;
  {
    absl::MutexLock lock(&mutex_);
    streams_.insert(stream);
    noticed = noticed_;
    draining = draining_;
    deadline = deadline_;
  }
  if (noticed) stream->DrainNotice(deadline);
  if (draining) stream->DrainNow();
}

void StreamRegistry::Remove(const std::shared_ptr<DrainableStream>& stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

void StreamRegistry::NotifyAll(absl::Time deadline) {
  std::vector<std::shared_ptr<DrainableStream>> all;
  {
    absl::MutexLock lock(&mutex_);
    noticed_ = true;
    deadline_ = deadline;
    all.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : all) stream->DrainNotice(deadline);
}

void StreamRegistry::DrainAll() {
  std::vector<std::shared_ptr<DrainableStream>> all;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    all.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : all) stream->DrainNow();
}

bool StreamRegistry::AwaitNone(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithDeadline(
      absl::Condition(
          +[](decltype(streams_)* streams) { return streams->empty(); }, &streams_),
      deadline);
}

}  // namespace gemmd::server
