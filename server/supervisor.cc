#include "server/supervisor.h"

#include <algorithm>

#include "server/exit_status.h"

namespace gemmd::server {
namespace {

constexpr absl::Duration kFirstDelay = absl::Seconds(1);
constexpr absl::Duration kLongestDelay = absl::Seconds(30);
// Whoever served for this long is not in a loop of failures.
constexpr absl::Duration kServedWell = absl::Minutes(1);

}  // namespace

Supervisor::Supervisor(size_t children) : children_(children) {}

std::vector<size_t> Supervisor::TakeDue(absl::Time now) {
  std::vector<size_t> due;
  if (stopping_) return due;
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (child.state != State::kWaiting || child.due > now) continue;
    child.state = State::kStarting;
    due.push_back(i);
  }
  return due;
}

void Supervisor::Ready(size_t index, absl::Time now) {
  Child& child = children_[index];
  child.state = State::kServing;
  child.has_served = true;
  child.since = now;
}

absl::Duration Supervisor::Ended(size_t index, const ChildEnd& end, absl::Time now) {
  Child& child = children_[index];
  const bool served_well = child.state == State::kServing && now - child.since >= kServedWell;
  child.state = State::kWaiting;
  if (stopping_) {
    worst_ = std::max<int>(worst_, end.signal != 0 ? kCutShort : end.status);
    return absl::InfiniteDuration();
  }
  if (!child.has_served) {
    Fail(end.signal != 0 || end.status == kOk ? kFailed : end.status);
    return absl::InfiniteDuration();
  }
  const bool first = served_well || child.delay == absl::ZeroDuration();
  child.delay = first ? kFirstDelay : std::min(2 * child.delay, kLongestDelay);
  child.due = now + child.delay;
  return child.delay;
}

void Supervisor::Fail(int status) {
  stopping_ = true;
  failed_ = status;
}

bool Supervisor::all_serve() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.state == State::kServing; });
}

std::optional<int> Supervisor::exit_status() const {
  const bool all_ended = std::all_of(children_.begin(), children_.end(), [](const Child& child) {
    return child.state == State::kWaiting;
  });
  if (!stopping_ || !all_ended) return std::nullopt;
  return failed_.value_or(worst_);
}

}  // namespace gemmd::server
