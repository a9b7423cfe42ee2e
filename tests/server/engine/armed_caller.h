// A caller of armed plans without a client library: maps the region, rings by the host, waits.

#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gemmd/v1/armed_region.h"
#include "server/engine/scheduling/memory_fence.h"

namespace gemmd {

class ArmedCaller {
 public:
  // Neither descriptor becomes its own.
  ArmedCaller(int memfd, int wake_fd, uint32_t slots) : wake_fd_(wake_fd), slots_(slots) {
    base_ =
        mmap(nullptr, gemmd_armed_size_bytes(slots), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    EXPECT_NE(base_, MAP_FAILED);
  }
  ~ArmedCaller() { munmap(base_, gemmd_armed_size_bytes(slots_)); }
  ArmedCaller(const ArmedCaller&) = delete;

  using Word = std::atomic_ref<uint32_t>;
  void* base() const { return base_; }
  uint32_t slots() const { return slots_; }
  const gemmd_armed_header& header() const { return *static_cast<gemmd_armed_header*>(base_); }
  Word gate(int slot) const { return Word(*gemmd_armed_gate(base_, slots_, slot)); }
  Word done(int slot) const { return Word(gemmd_armed_done_of(base_, slots_, slot)->done); }
  Word waiters(int slot) const { return Word(gemmd_armed_done_of(base_, slots_, slot)->waiters); }
  Word host_done(int slot) const {
    return Word(gemmd_armed_report_of(base_, slots_, slot)->host_done);
  }

  // As a stream does: without a look at the poller.
  void Set(int slot, uint32_t value = GEMMD_ARMED_RUNG) {
    gate(slot).store(value, std::memory_order_release);
  }
  void Ring(int slot, uint32_t value = GEMMD_ARMED_RUNG) {
    Set(slot, value);
    server::MemoryFence();
    auto& sleeps = static_cast<gemmd_armed_header*>(base_)->poller_sleeps;
    if (Word(sleeps).load(std::memory_order_relaxed) == 0) return;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  // Spins until the slot is done, takes that back and returns it; 0 after `timeout`.
  uint32_t Wait(int slot, absl::Duration timeout = absl::Minutes(1)) {
    const absl::Time end = absl::Now() + timeout;
    for (int looks = 1;; ++looks) {
      const uint32_t value = done(slot).load(std::memory_order_acquire);
      if (value != 0) {
        done(slot).store(0, std::memory_order_release);
        return value;
      }
      if (looks % 256 != 0) continue;
      std::this_thread::yield();
      if (absl::Now() > end) return 0;
    }
  }
  // The same, asleep.
  uint32_t Sleep(int slot, uint32_t host_done_before) {
    waiters(slot).fetch_add(1);
    server::MemoryFence();
    while (done(slot).load() == 0 && host_done(slot).load() == host_done_before) {
      syscall(SYS_futex, &gemmd_armed_report_of(base_, slots_, slot)->host_done, FUTEX_WAIT,
              host_done_before, nullptr, nullptr, 0);
    }
    waiters(slot).fetch_sub(1);
    return Wait(slot);
  }
  gemmd_armed_report Report(int slot) const {
    gemmd_armed_report* from = gemmd_armed_report_of(base_, slots_, slot);
    gemmd_armed_report copy;
    for (;;) {
      const uint32_t before = Word(from->seq).load(std::memory_order_acquire);
      auto* words = reinterpret_cast<uint32_t*>(from);
      for (size_t i = 0; i < sizeof(copy) / sizeof(uint32_t); ++i) {
        const uint32_t word = Word(words[i]).load(std::memory_order_acquire);
        std::memcpy(reinterpret_cast<char*>(&copy) + i * sizeof(word), &word, sizeof(word));
      }
      if (before % 2 == 0 && Word(from->seq).load(std::memory_order_relaxed) == before) return copy;
    }
  }

 private:
  void* base_;
  const int wake_fd_;
  const uint32_t slots_;
};

}  // namespace gemmd
