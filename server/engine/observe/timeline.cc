#include "server/engine/observe/timeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"

namespace gemmd::server {

void Timeline::Add(const TimelineEvent& event) {
  for (Slot& slot : slots_) {
    // Acquire: the ring was made before.
    if (!slot.recording.load(std::memory_order_acquire)) continue;
    if (!slot.ring->Push(event)) slot.dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

absl::StatusOr<Recording> Timeline::Begin(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  for (Slot& slot : slots_) {
    if (slot.taken) continue;
    slot.taken = true;
    if (slot.ring == nullptr) slot.ring = std::make_unique<EventRing>(events_each_);
    TimelineEvent left;
    while (slot.ring->Pop(left)) {
    }
    slot.dropped.store(0, std::memory_order_relaxed);
    slot.recording.store(true, std::memory_order_release);
    recordings_.fetch_add(1, std::memory_order_relaxed);
    return Recording(*this, slot, now);
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(kMaxRecordings, " traces are being taken, limit ",
                                                kMaxRecordings, "; wait until one has ended")),
      reason::kTraceLimit);
}

void Timeline::Stop(Slot& slot) {
  if (slot.recording.exchange(false)) recordings_.fetch_sub(1, std::memory_order_relaxed);
}

void Timeline::Release(Slot& slot) {
  Stop(slot);
  absl::MutexLock lock(&mutex_);
  slot.taken = false;
}

Recording& Recording::operator=(Recording&& other) noexcept {
  if (this == &other) return *this;
  End();
  timeline_ = std::exchange(other.timeline_, nullptr);
  slot_ = std::exchange(other.slot_, nullptr);
  begin_ = other.begin_;
  return *this;
}

bool Recording::Take(int most, absl::FunctionRef<void(const TimelineEvent&)> use) {
  TimelineEvent event;
  for (int i = 0; i < most; ++i) {
    if (!slot_->ring->Pop(event)) return false;
    if (event.begin + event.duration >= begin_) use(event);
  }
  return true;
}

void Recording::End() {
  if (timeline_ == nullptr) return;
  std::exchange(timeline_, nullptr)->Release(*std::exchange(slot_, nullptr));
}

}  // namespace gemmd::server
