// EventRing: a fixed number of timeline events between many writers and one reader, without a lock:
// a writer takes a place with one compare-and-swap and never waits, neither for the reader nor for
// another writer. After Dmitry Vyukov's bounded queue: each cell carries the turn it is ready for.

#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "server/engine/observe/timeline_event.h"

namespace gemmd::server {

class EventRing {
 public:
  // `capacity` is a power of two.
  explicit EventRing(uint64_t capacity) : cells_(capacity), mask_(capacity - 1) {
    for (uint64_t i = 0; i < capacity; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  // Any thread. False when it is full.
  bool Push(const TimelineEvent& event) {
    uint64_t at = tail_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[at & mask_];
      const auto ahead = static_cast<int64_t>(cell.turn.load(std::memory_order_acquire) - at);
      if (ahead < 0) return false;  // the reader has not been here since the last round
      if (ahead > 0) {
        at = tail_.load(std::memory_order_relaxed);  // another writer was
      } else if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.event = event;
        cell.turn.store(at + 1, std::memory_order_release);
        return true;
      }
    }
  }

  // One thread at a time. False when there is none, or the next one is still being written.
  bool Pop(TimelineEvent& event) {
    Cell& cell = cells_[head_ & mask_];
    if (cell.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    event = cell.event;
    cell.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

 private:
  struct Cell {
    std::atomic<uint64_t> turn;
    TimelineEvent event;
  };

  std::vector<Cell> cells_;
  const uint64_t mask_;
  alignas(64) std::atomic<uint64_t> tail_{0};  // writers share this line, the reader has its own
  alignas(64) uint64_t head_ = 0;
};

}  // namespace gemmd::server
