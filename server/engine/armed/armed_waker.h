// ArmedWaker: how the threads that end armed runs wake the poller if it sleeps and a gate is
// waiting for it.

#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "server/engine/scheduling/memory_fence.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

// Thread-safe.
class ArmedWaker {
 public:
  ArmedWaker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const { return fd_.get(); }

  // The poller is about to sleep (and looks at every gate once more behind this), or no longer
  // does.
  void SetSleeping(bool sleeping) { sleeping_.store(sleeping, std::memory_order_seq_cst); }

  // Behind whatever the poller is to see.
  void WakeIfAsleep() {
    MemoryFence();
    if (sleeping_.load(std::memory_order_relaxed)) Wake();
  }
  void Wake() {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the poller is awake.
    (void)!write(fd_.get(), &one, sizeof(one));
  }
  void Clear() {
    uint64_t count;
    (void)!read(fd_.get(), &count, sizeof(count));
  }

 private:
  const UniqueFd fd_;
  std::atomic<bool> sleeping_{false};
};

}  // namespace gemmd::server
