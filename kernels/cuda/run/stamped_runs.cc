// Runs of armed plans that tell of their end by a kernel and not by an event (run_stamps.h).

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/run/cuda_stream.h"
#include "kernels/cuda/run/graph.h"
#include "kernels/cuda/run/stream_signal.h"

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

// A stream that waits for a word looks again some 9 us later, or at once when any stream writes
// one: a kernel's store alone, which sets the word, goes unseen until then. Runs that are chained
// do without: a write between two would keep them from overlapping.
absl::Status CudaStream::WakeWaiting(const Flight& flight) {
  if (!flight.bindings.stream_waits || flight.graph == nullptr) return absl::OkStatus();
  return fence_.Check(QueueSignal(stream_, reinterpret_cast<std::byte*>(&flight.stamps->wake), 1));
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

absl::StatusOr<double> CudaStream::MeasureEventShare() {
  constexpr int kTimes = 9;
  StampsRef stamps, other;  // the second for its word
  absl::Status status = MakeStamps(stamps);
  if (status.ok()) status = MakeStamps(other);
  if (!status.ok()) return status;
  const absl::StatusOr<EventRef> start = events_.Take(Awaited::kByAsking);
  const absl::StatusOr<EventRef> end = events_.Take(Awaited::kByAsking);
  if (!start.ok() || !end.ok()) return start.ok() ? end.status() : start.status();
  const auto record = [](const EventRef& event, cudaStream_t side) {
    return cudaEventRecordWithFlags(event.get(), side, cudaEventRecordExternal);
  };
  auto graph = Graph::Capture(side_, [&](cudaStream_t side) {
    cudaError_t code = record(*start, side);
    if (code == cudaSuccess) code = LaunchBegin(began_, side);
    if (code == cudaSuccess) {
      code = LaunchEnd({&other->ended, began_, stamps.get()}, /*programmatic=*/true, side);
    }
    if (code == cudaSuccess) code = record(*end, side);
    return ToStatus(code, "recording an empty run");
  });
  if (!graph.ok()) return graph.status();
  std::vector<double> shares;
  for (int i = 0; i < kTimes; ++i) {
    float milliseconds = 0;
    cudaError_t code = (*graph)->Launch(stream_);
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
    if (code == cudaSuccess) code = cudaEventElapsedTime(&milliseconds, start->get(), end->get());
    if (code != cudaSuccess) return ToStatus(code, "timing an empty run");
    const double stamped = static_cast<double>(stamps->ended_ns - stamps->began_ns) * 1e-9;
    shares.push_back(std::max(0.0, milliseconds * 1e-3 - stamped));
  }
  std::nth_element(shares.begin(), shares.begin() + kTimes / 2, shares.end());
  return shares[kTimes / 2];
}

// From its own start, or else from the end of the run in front.
double CudaStream::StampedSeconds(const Flight& flight) const {
  const RunStamps& stamps = *flight.stamps;
  const bool alone = stamps.began_ns != 0;
  const uint64_t began = alone ? stamps.began_ns : last_ended_ns_;
  if (began == 0 || began > stamps.ended_ns) return 0;
  return static_cast<double>(stamps.ended_ns - began) * 1e-9 + (alone ? event_share_ : 0);
}

}  // namespace gemmd::kernels::cuda
