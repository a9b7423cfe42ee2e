// ArmedMemory: the daemon's side of the memory that a session shares for armed plans. It alone
// knows the layout (gemmd/v1/armed_region.h). What a client wrote there is read in two places, a
// gate and a count of sleepers, and neither is trusted: both mean only "now" or "not now".

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/v1/armed_region.h"
#include "kernels/backend.h"

namespace gemmd::server {

// Of one run, for the client to read.
struct ArmedReport {
  uint64_t run = 0;  // since the plan was armed
  absl::Duration device_time;
  absl::Duration queued;
  absl::Time taken;
  absl::Status status;
};

// Slots are 0 to slots() - 1. Reading and taking gates, and waking, are thread-safe; reports and
// done words of one slot are written by one thread at a time.
class ArmedMemory {
 public:
  // `slots` is a multiple of 16. RESOURCE_EXHAUSTED when the backend or the system has no memory.
  static absl::StatusOr<std::unique_ptr<ArmedMemory>> Create(kernels::Backend& backend, int slots);
  ~ArmedMemory();
  ArmedMemory(const ArmedMemory&) = delete;

  int slots() const { return static_cast<int>(slots_); }
  int64_t size_bytes() const { return memory_->size_bytes(); }
  int memfd() const { return memory_->shared_fd(); }  // sealed against any change of size

  bool Rung(int slot) const;
  bool AnyRung(size_t line) const;  // of the 16 slots whose gates share a line
  uint32_t TakeGate(int slot);      // what it held; it is 0 now

  // A slot as it is when a plan is armed in it.
  void Reset(int slot);
  // The report, then its count of answered runs. SetDone comes behind it.
  void WriteReport(int slot, const ArmedReport& report);
  void SetDone(int slot, uint32_t value);
  // Wakes the client's threads that wait for the slot, if any says that it does.
  void WakeWaiters(int slot);
  // The done word, as a device of the backend addresses it.
  std::byte* DoneOnDevice(int slot) const;

  void SetPollerSleeps(bool sleeps);
  void SetEnded();

 private:
  ArmedMemory(std::unique_ptr<kernels::Memory> memory, void* host, uint32_t slots);
  gemmd_armed_header& header() const { return *static_cast<gemmd_armed_header*>(host_); }

  const std::unique_ptr<kernels::Memory> memory_;
  void* const host_;  // a mapping of our own: the device's address need not be the host's
  const uint32_t slots_;
  // What the region's counts are, by our own word: a client may scribble over them.
  std::vector<uint32_t> seq_, host_done_, failed_;
};

}  // namespace gemmd::server
