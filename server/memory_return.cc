#include "server/memory_return.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

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

MemoryReturn::MemoryReturn() : MemoryReturn({ResidentBytes, [] { malloc_trim(0); }}) {}

void MemoryReturn::Watch(const Work& work, absl::Time now) {
  if (resident_bytes_ < 0) resident_bytes_ = memory_.resident_bytes();
  if (work.under_way > 0 || work.begun - begun_ > kNextToNothing ||
      quiet_since_ == absl::InfiniteFuture()) {
    quiet_since_ = now;
    begun_ = work.begun;
    return;
  }
  if (now - quiet_since_ < kQuiet) return;
  quiet_since_ = now;
  begun_ = work.begun;
  const int64_t before = memory_.resident_bytes();
  if (before - resident_bytes_ < kWorthwhileBytes) {
    resident_bytes_ = std::min(resident_bytes_, before);
    return;
  }
  memory_.trim();
  resident_bytes_ = memory_.resident_bytes();
  returned_bytes_.fetch_add(std::max<int64_t>(0, before - resident_bytes_),
                            std::memory_order_relaxed);
}

}  // namespace gemmd::server
