// MarkRounds: a stream's wait for marks of other GPUs between two kernels. A second stream waits
// for the marks and then writes a word. On the stream itself a kernel of one warp, which is in
// place when the one in front ends, looks at that word and lets the next one start. A wait of the
// stream takes some 2 us though all is there.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

// Of one stream, whose device is current in each call. Thread-compatible. Errors are ToStatus's
// (cuda_status.h).
class MarkRounds {
 public:
  MarkRounds() = default;
  ~MarkRounds();  // the stream's work is through
  MarkRounds(const MarkRounds&) = delete;
  MarkRounds& operator=(const MarkRounds&) = delete;

  // The second stream: what it is given from here on to Await's call is awaited. It must need no
  // SM, as the kernels that `stream` has may leave none.
  absl::StatusOr<cudaStream_t> Begin();
  // Queues the kernel, behind a kernel on `stream` whose end it overlaps. After Begin.
  absl::Status Await(cudaStream_t stream);

 private:
  cudaStream_t waits_ = nullptr;
  uint32_t* rounds_ = nullptr;  // the device's: how many are over
  uint32_t round_ = 0;
};

// Queues a kernel that ends when what is in front of it has, and `rounds`, which counts up and
// around, has come to `round`. It overlaps the end of the kernel in front; one behind it takes no
// SM before that round.
cudaError_t LaunchAwaitRound(const uint32_t* rounds, uint32_t round, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
