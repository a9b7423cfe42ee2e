// ProcessorWake: while there is work, processors of this machine wake within a bounded time.
//
// A call waits for a thread four times, at the client and here, and a processor that has gone to
// sleep meanwhile takes 40 us and more to come back on many virtual machines. The kernel keeps a
// bound on that for as long as a file holds it.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd::server {

// Not thread-safe. The destructor lets go.
class ProcessorWake {
 public:
  static constexpr char kFile[] = "/dev/cpu_dma_latency";
  static constexpr absl::Duration kStays = absl::Seconds(1);  // behind the last program

  // INVALID_ARGUMENT when `file` cannot be written: say so before there is work.
  static absl::StatusOr<std::unique_ptr<ProcessorWake>> Create(absl::Duration most,
                                                               const std::string& file = kFile);
  ~ProcessorWake() { Release(); }

  // To be called now and then. `done` counts programs that have ended, `under_way` those that have
  // not.
  void Watch(int64_t done, int64_t under_way, absl::Time now);
  bool held() const { return fd_ >= 0; }

 private:
  ProcessorWake(int32_t most_us, std::string file) : most_us_(most_us), file_(std::move(file)) {}
  void Hold();
  void Release();

  const int32_t most_us_;
  const std::string file_;
  int fd_ = -1;
  int64_t done_ = 0;
  absl::Time last_work_ = absl::InfinitePast();
};

}  // namespace gemmd::server
