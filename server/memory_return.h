// MemoryReturn: gives the memory of a burst back once the burst is over. malloc keeps what is freed
// in blocks below 32 MiB (kept_memory.h), so that messages do not fault their pages in again, and
// by itself would keep it for good.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace gemmd::server {

class MemoryReturn {
 public:
  // How to see and to give back, for tests; by default the process's own.
  struct Memory {
    std::function<int64_t()> resident_bytes;
    std::function<void()> trim;
  };
  MemoryReturn();
  explicit MemoryReturn(Memory memory)
      : memory_(std::move(memory)), resident_bytes_(memory_.resident_bytes()) {}

  // What the daemon does: calls and programs begun so far, and those under way.
  struct Work {
    int64_t begun = 0;
    int64_t under_way = 0;
  };
  // Trims when the process has grown since it last did, and for some seconds next to nothing was
  // done and nothing is under way; or, while there is work, now and then: less and less often when
  // it turns out that the work needs the memory. To be called a few times a second, by one thread:
  // a trim walks all of malloc's memory, and whoever wants some meanwhile waits.
  void Watch(const Work& work, absl::Time now);

  int64_t returned_bytes() const { return returned_bytes_.load(std::memory_order_relaxed); }

 private:
  // Between two looks while there is work. A trim of 200 MiB holds malloc up for milliseconds.
  static constexpr absl::Duration kShortestPatience = absl::Seconds(20);
  static constexpr absl::Duration kLongestPatience = absl::Minutes(10);

  bool Idle(const Work& work) const;
  bool QuietForLong(const Work& work, absl::Time now);
  bool DueAtWork(absl::Time now);
  void Trim(int64_t before);

  const Memory memory_;
  absl::Time quiet_since_ = absl::InfiniteFuture();
  // While there is work: the next look, the time to the one after it, and what there was before the
  // last trim.
  absl::Time next_look_ = absl::InfinitePast();
  absl::Duration patience_ = kShortestPatience;
  int64_t before_trim_ = -1;
  int64_t last_returned_ = 0;  // by the last trim
  int64_t begun_ = 0;          // when quiet_since_ was
  // After the last trim; at first, before any work: a burst may be over by the first Watch.
  int64_t resident_bytes_;
  std::atomic<int64_t> returned_bytes_{0};
};

}  // namespace gemmd::server
