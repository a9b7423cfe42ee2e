// Timeline: what the daemon does, moment by moment, for whoever watches. Lanes, transfers and calls
// add events; each Recording gets them all, or counts those that its reader was too slow for.
//
//   if (timeline.on()) timeline.Add({.kind = TimelineEvent::Kind::kLaunch, .begin = ...});
//
//   absl::StatusOr<Recording> recording = timeline.Begin(clock.Now());
//   recording->Take(2048, [](const TimelineEvent& event) { ... });
//
// While nobody watches it costs its callers one relaxed load. Nobody ever waits for a reader.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/observe/event_ring.h"
#include "server/engine/observe/timeline_event.h"

namespace gemmd::server {

class Recording;

// Thread-safe.
class Timeline {
 public:
  static constexpr int kMaxRecordings = 4;
  static constexpr uint64_t kEvents = 1 << 15;  // 4.5 MiB a recording, while it lasts and after

  explicit Timeline(uint64_t events_each = kEvents) : events_each_(events_each) {}

  bool on() const { return recordings_.load(std::memory_order_relaxed) > 0; }
  void Add(const TimelineEvent& event);
  // For TimelineEvent::program.
  uint64_t NextProgram() { return next_program_.fetch_add(1, std::memory_order_relaxed); }

  // Records from now on. RESOURCE_EXHAUSTED while kMaxRecordings are under way.
  absl::StatusOr<Recording> Begin(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class Recording;

  // A ring stays when its recording ends: a writer that was late may still be in it. What such a
  // one leaves there is an event as good as any, for the next.
  struct Slot {
    std::atomic<bool> recording{false};
    std::atomic<int64_t> dropped{0};
    std::unique_ptr<EventRing> ring;
    bool taken = false;  // guarded by mutex_
  };
  void Stop(Slot& slot);
  void Release(Slot& slot) ABSL_LOCKS_EXCLUDED(mutex_);

  const uint64_t events_each_;
  std::atomic<int> recordings_{0};
  std::atomic<uint64_t> next_program_{1};
  absl::Mutex mutex_;
  std::array<Slot, kMaxRecordings> slots_;
};

// One reader's share of the timeline, until it is destroyed. Move-only; one thread at a time. The
// Timeline outlives it.
class Recording {
 public:
  Recording() = default;
  Recording(Recording&& other) noexcept { *this = std::move(other); }
  Recording& operator=(Recording&& other) noexcept;
  ~Recording() { End(); }

  absl::Time begin() const { return begin_; }
  // Hands over up to `most` events, in the order in which they were added, which is about that of
  // their ends; those that ended before begin() are left out. True when there may be more.
  bool Take(int most, absl::FunctionRef<void(const TimelineEvent&)> use);
  // Events that found no room, so far.
  int64_t dropped() const { return slot_->dropped.load(std::memory_order_relaxed); }
  // Nothing is added any more; what was added can still be taken.
  void Stop() { timeline_->Stop(*slot_); }
  void End();

 private:
  friend class Timeline;
  Recording(Timeline& timeline, Timeline::Slot& slot, absl::Time begin)
      : timeline_(&timeline), slot_(&slot), begin_(begin) {}

  Timeline* timeline_ = nullptr;  // null: moved from, or ended
  Timeline::Slot* slot_ = nullptr;
  absl::Time begin_;
};

}  // namespace gemmd::server
