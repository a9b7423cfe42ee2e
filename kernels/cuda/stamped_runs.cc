// Runs of armed plans that tell of their end by a kernel and not by an event (run_stamps.h).

#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cuda_stream.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr double kLaunchSeconds = 5e-6;  // of a kernel, for the host, under MPS

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Of numbers that cannot be the host is to tell, and the last kernel would tell before it.
bool CudaStream::Flight::takes_stamps() const {
  return often() && brief() && !code().timed() && !code().may_fault();
}

// Whether launching its kernels takes the host less than running them takes the device.
bool CudaStream::Flight::lets_host_keep_ahead() const {
  const double launches = static_cast<double>(program->steps().size()) + 1;
  return program->estimated_seconds() > launches * kLaunchSeconds;
}

absl::Status CudaStream::MakeStamps(StampsRef& stamps) {
  absl::StatusOr<StampsRef> taken = stamps_.Take();
  if (!taken.ok()) return taken.status();
  stamps = *std::move(taken);
  if (began_ != nullptr) return absl::OkStatus();
  return ToStatus(cudaMallocAsync(reinterpret_cast<void**>(&began_), sizeof(*began_), stream_),
                  "allocating the device's word for a run's start");
}

RunEnd CudaStream::EndOf(const Flight& flight, const StampsRef& stamps, bool began) const {
  return {reinterpret_cast<uint32_t*>(flight.bindings.signal), began ? began_ : nullptr,
          stamps.get()};
}

// Without memory for them the run has events.
void CudaStream::TakeStamps(Flight& flight, bool chained) {
  if (!fence_.Check(MakeStamps(flight.stamps)).ok()) return flight.stamps.reset();
  flight.begins = !chained || !last_stamped_;
  if (chained) flight.way = LaunchWay::kChained;
}

cudaError_t CudaStream::PollStamps(const RunStamps& stamps, absl::Duration most) {
  constexpr int kLooksAClockRead = 16;
  std::atomic_ref ended(const_cast<uint32_t&>(stamps.ended));
  const absl::Time late = absl::Now() + most;
  do {
    for (int i = 0; i < kLooksAClockRead; ++i) {
      if (ended.load(std::memory_order_acquire) != 0) return cudaSuccess;
      Pause();
    }
    std::this_thread::yield();
  } while (absl::Now() < late);
  return cudaErrorNotReady;
}

// A kernel that faults leaves no stamp: late, the stream is asked.
cudaError_t CudaStream::AwaitStamps(const Flight& flight) {
  cudaError_t code = PollStamps(*flight.stamps, PollTime(flight.program->estimated_seconds()));
  while (code == cudaErrorNotReady) {
    absl::SleepFor(kLateLook);
    const cudaError_t stream = cudaStreamQuery(stream_);
    if (stream != cudaSuccess && stream != cudaErrorNotReady) return stream;
    if (stream == cudaErrorNotReady) cudaGetLastError();  // it is none
    code = PollStamps(*flight.stamps, absl::ZeroDuration());
    if (stream == cudaSuccess && code == cudaErrorNotReady) return cudaErrorUnknown;
  }
  return code;
}

// From its own start, or else from the end of the run in front.
double CudaStream::StampedSeconds(const Flight& flight) const {
  const RunStamps& stamps = *flight.stamps;
  const uint64_t began = stamps.began_ns != 0 ? stamps.began_ns : last_ended_ns_;
  return began == 0 || began > stamps.ended_ns
             ? 0
             : static_cast<double>(stamps.ended_ns - began) * 1e-9;
}

}  // namespace gemmd::kernels::cuda
