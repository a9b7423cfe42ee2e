// CudaStream: one compute stream of a device, and the thread that reports what ran on it.
//
//   Launch (caller)     bytes of Writes to pinned memory -> event, kernels and copies, event ->
//   queue harvest (thread)    waits for the last event -> bytes of Reads to the caller -> done
//
// Launch never waits for the device, and no work ever runs on the caller's thread.

#ifndef GEMMD_KERNELS_CUDA_CUDA_STREAM_H_
#define GEMMD_KERNELS_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_program.h"
#include "kernels/cuda/event_pool.h"
#include "kernels/cuda/fence.h"
#include "kernels/cuda/pinned.h"

namespace gemmd::kernels::cuda {

// Errors: a program that cannot be queued fails alone. A fatal error of the device fails it and
// everything behind it with the fence's status.
//
// Times are the device's, by events. Ops of a program that is not timed() share its time in
// proportion to their estimates. `started` is the moment the end was seen less the device's time.
class CudaStream final : public Stream {
 public:
  // `pinned` and `fence` outlive the stream. When the device refuses a stream, every Launch fails
  // with its status.
  CudaStream(int ordinal, PinnedPool& pinned, Fence& fence);
  ~CudaStream() override;

  void Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) override;

 private:
  // A program from its launch to its done.
  struct Flight {
    std::shared_ptr<const Program> program;  // shared: a plan's program runs many times at once
    Bindings bindings;
    Done done;
    absl::Time launched;
    absl::Status status;  // of the launch
    bool queued = false;  // something of it may be on the device
    PinnedBlock io;
    std::vector<cudaEvent_t> events;  // the start, the ends of ops if timed, the end

    const CudaProgram& code() const { return static_cast<const CudaProgram&>(*program); }
  };

  // On the caller's thread.
  absl::Status Start(Flight& flight);
  absl::Status Acquire(Flight& flight);  // scratch, pinned memory, events: nothing is queued yet
  absl::Status Enqueue(Flight& flight, const GemmLaunches& gemms);
  absl::Status GrowScratch(int64_t bytes);

  // On the harvest thread.
  void Harvest() ABSL_LOCKS_EXCLUDED(mutex_);
  LaunchResult Finish(Flight& flight);
  static cudaError_t AwaitEvent(cudaEvent_t event, double expected_seconds);
  absl::Status AwaitEnd(const Flight& flight);
  absl::Status ReadTimes(const Flight& flight, LaunchResult& result);

  const int ordinal_;
  PinnedPool& pinned_;
  Fence& fence_;
  absl::Status ready_;  // of stream_
  cudaStream_t stream_ = nullptr;
  EventPool events_;
  // Written by one program after the other, in stream order; replaced in stream order too, so that
  // what is in flight keeps its own. Touched by Launch only.
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  absl::Mutex mutex_;
  std::deque<Flight> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_CUDA_STREAM_H_
