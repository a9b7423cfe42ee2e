// A session's region of slots in this process (gemmd/v1/armed_region.h has the layout and the
// protocol): mapped, made reachable for GPUs, and watched, so that nobody waits for a daemon that
// is gone.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/armed/cuda_driver.h"
#include "client/armed/daemon_watch.h"
#include "client/armed/outcome.h"
#include "gemmd/v1/armed_region.h"

namespace gemmd::armed {

// How the streams of one context reach the region.
struct Reach {
  uint64_t address = 0;  // of its first byte
  RingKernels kernels;
};

// What ArmedService.GetArmedRegion handed over.
struct RegionParts {
  int memory_fd = -1;  // the sealed memfd; Open closes it
  int wake_fd = -1;    // the eventfd; Open closes it, or the region when it goes
  int64_t size_bytes = 0;
  int32_t slots = 0;
  int32_t layout_version = 0;
  std::string share_socket;
};

// Thread-safe. A thread of its own notices within 250 ms that the session has ended, and at once
// that the daemon has; from then on it ends every wait of a stream or host as a failed run.
class Region {
 public:
  // Null, and why, for what is no such region or belongs to no living daemon.
  static std::shared_ptr<Region> Open(RegionParts parts, Outcome& why);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uint32_t slots() const { return slots_; }
  uint32_t* gate(uint32_t slot) const { return gemmd_armed_gate(data_, slots_, slot); }
  gemmd_armed_done* done(uint32_t slot) const { return gemmd_armed_done_of(data_, slots_, slot); }
  const gemmd_armed_report* report(uint32_t slot) const {
    return gemmd_armed_report_of(data_, slots_, slot);
  }

  // Wakes the daemon's poller if it sleeps. After a ring.
  void WakePoller() const;

  // The region for the GPU of a stream's context. Registers the memory with the driver
  // the first time, which cannot be done while a stream is being captured: see Prepare. `gpu_uuid`:
  // the GPU that it must be; empty: any.
  Outcome ReachBy(CudaStream stream, const std::string& gpu_uuid, Reach& reach) const;
  // The same ahead of time, for the GPU's primary context: what torch and CUDA's runtime use.
  Outcome Prepare(const std::string& gpu_uuid) const;

  // Who arms a slot says so, and by the number he got, when he has let go of it: from then on rings
  // that a stream still makes are ended, unless another has armed the slot meanwhile.
  uint64_t TakeSlot(uint32_t slot);
  void GiveUpSlot(uint32_t slot, uint64_t owner);

  // Why nothing can be rung any more; OK while the daemon and the session live.
  Outcome Ended() const;

 private:
  struct SlotState {
    uint64_t owner = 0;  // 0: none ever
    bool given_up = false;
  };
  struct Registered {
    CudaContext context;
    Reach reach;
  };

  Region() = default;
  Outcome Map(int memory_fd);
  Outcome RegisterIn(const CudaDriver& driver, CudaContext context, const std::string& gpu_uuid,
                     Reach& reach) const;
  void Watch();
  void End(const char* why);
  bool EndWaits();  // whether there were any
  void EndRingsOfGivenUpSlots();

  void* data_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint32_t slots_ = 0;
  int wake_fd_ = -1;
  int process_ = -1;  // that opened it
  std::string share_socket_;

  mutable std::mutex mu_;
  mutable std::vector<Registered> registered_;              // by mu_
  mutable std::atomic<CudaContext> last_context_{nullptr};  // of `last_`, set once: the usual one
  mutable Reach last_;

  std::mutex slots_mu_;            // held while rings are ended: nobody takes a slot meanwhile
  std::vector<SlotState> states_;  // by slots_mu_
  std::atomic<const char*> ended_{nullptr};
  std::atomic<bool> stopping_{false};
  int stop_fd_ = -1;  // eventfd
  DaemonWatch daemon_;
  std::thread watcher_;
};

}  // namespace gemmd::armed
