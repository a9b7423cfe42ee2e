#include "server/memory_return.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "server/kept_memory.h"

namespace gemmd::server {
namespace {

constexpr absl::Duration kQuiet = absl::Seconds(3);
// Calls and programs in that time that are no burst: probes, a session kept alive.
constexpr int64_t kNextToNothing = 100;
// Less than this is not worth a walk through malloc's memory.
constexpr int64_t kWorthwhileBytes = 16 << 20;

// The second number of /proc/self/statm.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

MemoryReturn::MemoryReturn() : MemoryReturn({ResidentBytes, GiveBackFreedMemory}) {}

bool MemoryReturn::Idle(const Work& work) const {
  return work.under_way == 0 && work.begun - begun_ <= kNextToNothing;
}

bool MemoryReturn::QuietForLong(const Work& work, absl::Time now) {
  if (now - quiet_since_ < kQuiet) return false;
  quiet_since_ = now;
  begun_ = work.begun;
  return true;
}

// What has come back since the last trim is what the work needs.
bool MemoryReturn::DueAtWork(absl::Time now) {
  if (next_look_ == absl::InfinitePast()) next_look_ = now + patience_;
  if (now < next_look_) return false;
  const bool trimmed = before_trim_ >= 0;
  const bool came_back = trimmed && memory_.resident_bytes() >= before_trim_ - kWorthwhileBytes;
  if (trimmed)
    patience_ = came_back ? std::min(2 * patience_, kLongestPatience) : kShortestPatience;
  next_look_ = now + patience_;
  before_trim_ = -1;
  return !came_back;
}

void MemoryReturn::Watch(const Work& work, absl::Time now) {
  if (quiet_since_ != absl::InfiniteFuture() && Idle(work)) {
    if (!QuietForLong(work, now)) return;
    const int64_t before = memory_.resident_bytes();
    const bool grown = before - resident_bytes_ >= kWorthwhileBytes;
    // Connections may have ended since, and what they freed shows in no growth.
    if (grown || last_returned_ >= kWorthwhileBytes) Trim(before);
    resident_bytes_ = std::min(resident_bytes_, before);
    return;
  }
  quiet_since_ = now;
  begun_ = work.begun;
  if (!DueAtWork(now)) return;
  const int64_t before = memory_.resident_bytes();
  if (before - resident_bytes_ < kWorthwhileBytes) return;
  Trim(before);
  before_trim_ = before;
}

void MemoryReturn::Trim(int64_t before) {
  memory_.trim();
  resident_bytes_ = memory_.resident_bytes();
  last_returned_ = std::max<int64_t>(0, before - resident_bytes_);
  returned_bytes_.fetch_add(last_returned_, std::memory_order_relaxed);
}

}  // namespace gemmd::server
