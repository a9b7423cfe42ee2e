// One armed plan as its caller rings it and waits for it.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "client/armed/outcome.h"
#include "client/armed/region.h"

namespace gemmd::armed {

// Of a slot's last run that was answered.
struct RunReport {
  uint64_t run = 0;  // which: 1 is the first since the plan was armed; 0: none was answered yet
  uint64_t device_ns = 0;
  uint64_t queued_ns = 0;  // from the ring to the device's start
  int32_t code = 0;        // google.rpc.Code
  uint32_t failed = 0;     // runs that failed since the plan was armed
  std::string reason;      // one word; empty when OK
  std::string message;     // its beginning
};

// Bytes that a stream copies on a GPU; none if size_bytes is 0.
struct DeviceCopy {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t size_bytes = 0;
};

// For one thread at a time; a wait may be made by another thread than the ring. A ring is followed
// by one wait, on the same side: Ring and Wait, or RingOn and WaitOn on streams that keep their
// order.
class Slot {
 public:
  struct Options {
    bool rung_by_stream = false;  // as it was armed
    std::string gpu_uuid;  // the plan's GPU; empty for a CPU device: then any stream may ring
  };

  Slot(std::shared_ptr<Region> region, uint32_t index, Options options);
  // Gives the slot up: what a stream still rings there fails. After it was disarmed.
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // From the host. FAILED_PRECONDITION while the last run is not done.
  Outcome Ring();
  // Sleeps, after a short spin, until the run is done; its error if it failed. `timeout_s` below 0
  // is for ever. DEADLINE_EXCEEDED leaves the run under way: wait again.
  Outcome Wait(double timeout_s);
  // True when Wait would not sleep.
  bool Done() const;

  // Queued on a stream, which the host does not wait for. A captured graph may hold them, in pairs.
  // Errors of earlier runs come from RingOn, once each.
  Outcome RingOn(CudaStream stream);
  Outcome WaitOn(CudaStream stream);
  // Both, after one copy and before another. So many bytes behind where the first one went become
  // 0xFF.
  Outcome CallOn(CudaStream stream, const DeviceCopy& before, const DeviceCopy& after,
                 uint64_t fill_bytes = 0);

  // The error of the last run that was answered.
  Outcome Status() const;
  RunReport Report() const;

  uint32_t index() const { return index_; }

 private:
  enum class Under : uint8_t { kNothing, kHostRun, kStreamRun };

  Outcome MayRing() const;
  Outcome MayRingOn(CudaStream stream, Reach& reach);
  // The error of a stream's run that nobody has been told.
  Outcome NewFailure();
  bool SpinUntilDone() const;
  void SleepUntilDone(int64_t most_ns) const;
  uint64_t gate_at(uint64_t region_address) const;
  uint64_t done_at(uint64_t region_address) const;

  const std::shared_ptr<Region> region_;  // shared with the session's other slots
  const uint32_t index_;
  const Options options_;
  const uint64_t owner_;  // the region's number of this one among the slot's owners
  std::atomic<Under> under_{Under::kNothing};
  uint32_t host_done_before_ = 0;
  uint32_t told_failed_ = 0;  // failures that the caller knows
  // Of the host's runs, until they were seen to be done.
  std::chrono::steady_clock::time_point rung_at_;
  std::chrono::nanoseconds last_took_{0};
};

}  // namespace gemmd::armed
