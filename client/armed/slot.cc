#include "client/armed/slot.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/armed/words.h"

namespace gemmd::armed {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A sleeper wakes some tens of microseconds late, so a wait looks for twice as long as the run
// before took; of a run of a millisecond that is little.
constexpr nanoseconds kShortestSpin = std::chrono::microseconds(50);
constexpr nanoseconds kLongestSpin = std::chrono::milliseconds(1);
constexpr int kLooksAClockRead = 32;
// The watcher ends waits without a change of the word that is slept on, so look now and then.
constexpr int64_t kSleepNs = 100'000'000;

std::string Text(const char* bytes, size_t size) { return {bytes, strnlen(bytes, size)}; }

}  // namespace

Slot::Slot(std::shared_ptr<Region> region, uint32_t index, Options options)
    : region_(std::move(region)),
      index_(index),
      options_(std::move(options)),
      owner_(region_->TakeSlot(index_)) {
  // What a former owner's last run left.
  Store(&region_->done(index_)->done, 0);
}

Slot::~Slot() { region_->GiveUpSlot(index_, owner_); }

Outcome Slot::MayRing() const {
  if (Outcome ended = region_->Ended(); !ended.ok()) return ended;
  if (under_.load(std::memory_order_relaxed) == Under::kNothing) return {};
  return {Code::kFailedPrecondition, "slot " + std::to_string(index_) +
                                         " was rung and its run is not done; wait for it first"};
}

Outcome Slot::Ring() {
  if (Outcome may = MayRing(); !may.ok()) return may;
  host_done_before_ = Load(&region_->report(index_)->host_done);
  under_.store(Under::kHostRun, std::memory_order_relaxed);
  rung_at_ = steady_clock::now();
  Store(&region_->done(index_)->done, 0);  // what a stream's run left
  Store(region_->gate(index_), GEMMD_ARMED_RUNG);
  region_->WakePoller();
  return {};
}

bool Slot::Done() const { return Load(&region_->done(index_)->done) != 0; }

bool Slot::SpinUntilDone() const {
  const auto until = steady_clock::now() + std::clamp(2 * last_took_, kShortestSpin, kLongestSpin);
  do {
    for (int i = 0; i < kLooksAClockRead; ++i) {
      if (Done()) return true;
      Pause();
    }
  } while (steady_clock::now() < until);
  return false;
}

void Slot::SleepUntilDone(int64_t most_ns) const {
  gemmd_armed_done* done = region_->done(index_);
  const uint32_t* word = &region_->report(index_)->host_done;
  __atomic_fetch_add(&done->waiters, 1, __ATOMIC_SEQ_CST);
  Fence();
  if (Load(&done->done) == 0 && Load(word) == host_done_before_) {
    SleepOn(word, host_done_before_, std::min(most_ns, kSleepNs));
  }
  __atomic_fetch_sub(&done->waiters, 1, __ATOMIC_SEQ_CST);
}

Outcome Slot::Wait(double timeout_s) {
  if (under_.load(std::memory_order_relaxed) != Under::kHostRun) {
    return {Code::kFailedPrecondition, "slot " + std::to_string(index_) +
                                           " has no run of the host's to wait for; ring it first"};
  }
  constexpr double kForeverS = 1e9;
  const double most_s = timeout_s < 0 ? kForeverS : std::min(timeout_s, kForeverS);
  const auto until = steady_clock::now() + nanoseconds(static_cast<int64_t>(most_s * 1e9));
  bool done = most_s > 0 ? SpinUntilDone() : Done();
  while (!done) {
    const nanoseconds left = until - steady_clock::now();
    if (left.count() <= 0) {
      return {Code::kDeadlineExceeded, "slot " + std::to_string(index_) + " is not done after " +
                                           std::to_string(timeout_s) + " s; its run goes on"};
    }
    SleepUntilDone(left.count());
    done = Done();
  }
  last_took_ = steady_clock::now() - rung_at_;
  const uint32_t came_to = Load(&region_->done(index_)->done);
  Store(&region_->done(index_)->done, 0);
  under_.store(Under::kNothing, std::memory_order_relaxed);
  if (came_to == GEMMD_ARMED_RAN) return {};
  if (Outcome ended = region_->Ended(); !ended.ok()) return ended;
  const Outcome failure = NewFailure();
  return failure.ok() ? Outcome(Code::kInternal, "the run failed and its report says nothing")
                      : failure;
}

uint64_t Slot::gate_at(uint64_t region_address) const {
  return region_address + gemmd_armed_gates_offset(region_->slots()) + index_ * sizeof(uint32_t);
}

uint64_t Slot::done_at(uint64_t region_address) const {
  return region_address + gemmd_armed_done_offset(region_->slots()) +
         index_ * sizeof(gemmd_armed_done);
}

Outcome Slot::MayRingOn(CudaStream stream, Reach& reach) {
  if (!options_.rung_by_stream) {
    return {Code::kFailedPrecondition, "slot " + std::to_string(index_) +
                                           " was armed for the host; arm it with rung_by_stream"};
  }
  if (Outcome may = MayRing(); !may.ok()) return may;
  if (Outcome failed = NewFailure(); !failed.ok()) return failed;
  return region_->ReachBy(stream, options_.gpu_uuid, reach);
}

Outcome Slot::RingOn(CudaStream stream) {
  Reach reach;
  if (Outcome may = MayRingOn(stream, reach); !may.ok()) return may;
  Outcome none;
  const MemoryStep ring[] = {{MemoryStep::Kind::kWrite, done_at(reach.address), 0},
                             {MemoryStep::Kind::kWrite, gate_at(reach.address), GEMMD_ARMED_RUNG}};
  if (Outcome why = CudaDriver::Get(none)->Queue(stream, ring); !why.ok()) return why;
  under_.store(Under::kStreamRun, std::memory_order_relaxed);
  region_->WakePoller();
  return {};
}

Outcome Slot::WaitOn(CudaStream stream) {
  if (under_.load(std::memory_order_relaxed) != Under::kStreamRun) {
    return {Code::kFailedPrecondition, "slot " + std::to_string(index_) +
                                           " has no run of a stream's to wait for; RingOn first"};
  }
  Reach reach;
  if (Outcome why = region_->ReachBy(stream, options_.gpu_uuid, reach); !why.ok()) return why;
  const MemoryStep wait[] = {
      {MemoryStep::Kind::kWaitAtLeast, done_at(reach.address), GEMMD_ARMED_RAN}};
  Outcome none;
  if (Outcome why = CudaDriver::Get(none)->Queue(stream, wait); !why.ok()) return why;
  under_.store(Under::kNothing, std::memory_order_relaxed);
  return {};
}

Outcome Slot::CallOn(CudaStream stream, const DeviceCopy& before, const DeviceCopy& after,
                     uint64_t fill_bytes) {
  Reach reach;
  if (Outcome may = MayRingOn(stream, reach); !may.ok()) return may;
  Outcome none;
  const CudaDriver& driver = *CudaDriver::Get(none);
  const uint64_t gate = gate_at(reach.address), done = done_at(reach.address);
  if (fill_bytes > 0) {
    Outcome why = driver.Fill(stream, before.to + before.size_bytes, 0xFF, fill_bytes);
    if (!why.ok()) return why;
  }
  const bool rings = reach.kernels.any();
  HandOver by_kernel = {before.to, before.from, before.size_bytes, gate, done};
  if (!rings || !CopiesByKernel(before.to, before.from, before.size_bytes)) {
    if (before.size_bytes > 0) {
      Outcome why = driver.Copy(stream, before.to, before.from, before.size_bytes);
      if (!why.ok()) return why;
    }
    by_kernel.to = by_kernel.from = by_kernel.size_bytes = 0;  // it rings alone
  }
  if (rings) {
    if (Outcome why = driver.CopyAndRing(stream, reach.kernels, by_kernel); !why.ok()) return why;
  }
  const MemoryStep steps[] = {{MemoryStep::Kind::kWrite, done, 0},
                              {MemoryStep::Kind::kWrite, gate, GEMMD_ARMED_RUNG},
                              {MemoryStep::Kind::kWaitAtLeast, done, GEMMD_ARMED_RAN}};
  if (Outcome why = driver.Queue(stream, std::span(steps).subspan(rings ? 2 : 0)); !why.ok()) {
    return why;
  }
  region_->WakePoller();
  if (after.size_bytes == 0) return {};
  return driver.Copy(stream, after.to, after.from, after.size_bytes);
}

RunReport Slot::Report() const {
  // Read as the header says, since the daemon may write meanwhile; a daemon that died while it
  // wrote leaves the number odd for ever.
  constexpr int kTries = 1000;
  const gemmd_armed_report* shared = region_->report(index_);
  std::array<uint32_t, sizeof(gemmd_armed_report) / sizeof(uint32_t)> words = {};
  for (int i = 0; i < kTries; ++i) {
    const uint32_t before = Load(&shared->seq);
    for (size_t word = 0; word < words.size(); ++word) {
      words[word] =
          __atomic_load_n(reinterpret_cast<const uint32_t*>(shared) + word, __ATOMIC_RELAXED);
    }
    Fence();
    const uint32_t after = __atomic_load_n(&shared->seq, __ATOMIC_RELAXED);
    if ((before & 1) == 0 && before == after) break;
  }
  gemmd_armed_report copy;
  std::memcpy(&copy, words.data(), sizeof(copy));
  return {.run = copy.run,
          .device_ns = copy.device_ns,
          .queued_ns = copy.queued_ns,
          .code = copy.code,
          .failed = copy.failed,
          .reason = Text(copy.reason, sizeof(copy.reason)),
          .message = Text(copy.message, sizeof(copy.message))};
}

Outcome Slot::Status() const {
  if (Outcome ended = region_->Ended(); !ended.ok()) return ended;
  const RunReport last = Report();
  if (last.code == 0) return {};
  return {static_cast<Code>(last.code),
          last.reason.empty() ? last.message : last.reason + ": " + last.message};
}

Outcome Slot::NewFailure() {
  const uint32_t* failed = &region_->report(index_)->failed;
  if (__atomic_load_n(failed, __ATOMIC_RELAXED) == told_failed_) return {};
  const RunReport last = Report();
  const uint32_t count = last.failed - told_failed_;
  told_failed_ = last.failed;
  if (last.code != 0) return Status();
  return {Code::kInternal, std::to_string(count) + " of the runs before failed, though not the " +
                               "last; their outputs hold NaN, and the daemon's log says why"};
}

}  // namespace gemmd::armed
