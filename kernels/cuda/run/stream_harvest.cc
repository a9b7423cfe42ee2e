// How a launched program's end is seen: by the harvest thread, or by a caller that waits anyway.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/cuda/run/cuda_stream.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr double kPolledSeconds = 500e-6;
constexpr absl::Duration kPollAtLeast = absl::Microseconds(100);
// With so many programs behind it the device does not wait for what one's end brings: its `done`
// waits this long for the next one's end, so that both are answered together. Not that of a call,
// whose answer goes by itself.
constexpr size_t kBacklog = 4;
constexpr absl::Duration kTogether = absl::Microseconds(20);
// How long the harvest thread stays awake for the next program: about what waking it costs. Behind
// a ring longer, since rings come 20 us after one another: until an end is seen the run counts as
// under way, and those behind it cannot be the graph that it was.
constexpr absl::Duration kLinger = absl::Microseconds(50);
constexpr absl::Duration kLingerForRings = absl::Milliseconds(5);

}  // namespace

absl::Duration CudaStream::PollTime(double expected_seconds) {
  return kPollAtLeast + absl::Seconds(2 * expected_seconds);
}

bool CudaStream::Flight::brief() const { return program->estimated_seconds() < kPolledSeconds; }

void CudaStream::LaunchAndWait(std::shared_ptr<const Program> program, Bindings bindings,
                               Done done) {
  const double estimate = program->estimated_seconds();
  Flight flight = Take(std::move(program), std::move(bindings), std::move(done));
  flight.waited_for = true;
  if (estimate >= waited_below_seconds_ || !flight.status.ok()) {
    return GiveToHarvest(std::move(flight));
  }
  bool alone = false;
  {
    absl::MutexLock lock(&mutex_);
    alone = queue_.empty() && !finishing_;
    if (alone) finishing_ = true;
  }
  const bool ended = alone && PollEnd(flight.end(), PollTime(estimate)) != cudaErrorNotReady;
  if (ended) {
    LaunchResult result = Finish(flight);
    std::move(flight.done)(std::move(result));
  }
  absl::MutexLock lock(&mutex_);
  if (!ended) Queue(std::move(flight));
  if (alone) finishing_ = false;
}

void CudaStream::Harvest() {
  // It copies out of pinned memory, which is there. Unbound it works as well.
  BindToNode(pinned_.node()).IgnoreError();
  // Without a device nothing is ever queued, and this does not matter.
  fence_.Check(cudaSetDevice(ordinal_), "choosing the device").IgnoreError();
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !finishing_ && (stop_ || !queue_.empty());
  };
  bool rung = false;  // the last one
  for (int64_t taken = 0;; ++taken) {
    Flight flight;
    size_t behind = 0;
    std::optional<Flight::End> next;  // of the program behind it
    Linger(taken, rung ? kLingerForRings : kLinger);
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;  // stopped, and everything launched is through
      flight = std::move(queue_.front());
      queue_.pop_front();
      behind = queue_.size();
      const bool together = behind >= kBacklog && !flight.waited_for;
      if (together && queue_.front().status.ok()) next = queue_.front().end();
      finishing_ = true;
    }
    rung = flight.often();
    LaunchResult result = Finish(flight);
    result.more = next.has_value() && PollEnd(*next, kTogether) == cudaSuccess;
    std::move(flight.done)(std::move(result));
    absl::MutexLock lock(&mutex_);
    finishing_ = false;
  }
}

void CudaStream::Linger(int64_t taken, absl::Duration most) const {
  const absl::Time end = absl::Now() + most;
  while (given_.load(std::memory_order_relaxed) == taken && absl::Now() < end) {
    std::this_thread::yield();
  }
}

// Until it is past; cudaErrorNotReady when that takes longer than `most`.
cudaError_t CudaStream::PollEvent(cudaEvent_t event, absl::Duration most) {
  const absl::Time late = absl::Now() + most;
  cudaError_t code;
  while ((code = cudaEventQuery(event)) == cudaErrorNotReady && absl::Now() < late) {
    std::this_thread::yield();
  }
  if (code == cudaErrorNotReady) cudaGetLastError();  // it is none
  return code;
}

cudaError_t CudaStream::PollEnd(const Flight::End& end, absl::Duration most) {
  return end.stamps != nullptr ? PollStamps(*end.stamps, most) : PollEvent(end.event.get(), most);
}

absl::Duration CudaStream::Passed(const Flight& flight, absl::Time now) const {
  return now - std::max(flight.launch_ended, last_seen_);
}

cudaError_t CudaStream::AwaitEvent(const Flight& flight) {
  const cudaEvent_t event = flight.events.back().get();
  const double estimate = flight.program->estimated_seconds();
  cudaError_t code = PollEvent(event, flight.brief() ? PollTime(estimate) : absl::ZeroDuration());
  while (flight.brief() && code == cudaErrorNotReady) {  // late
    absl::SleepFor(kLateLook);
    code = PollEvent(event, absl::ZeroDuration());
  }
  if (code != cudaErrorNotReady) return code;
  if (!flight.steady()) return cudaEventSynchronize(event);
  EndForecast& forecast = flight.code().forecast();
  // With more behind it the device goes on, and the answer may be late by a wake.
  const auto last = [this] { return in_flight_.load(std::memory_order_relaxed) <= 1; };
  if (last()) {
    const EndWait wait = WaitFor(forecast.usual(), Passed(flight, absl::Now()));
    if (wait.sleep > absl::ZeroDuration()) absl::SleepFor(wait.sleep);
    if (wait.look > absl::ZeroDuration() && last()) code = PollEvent(event, wait.look);
  }
  if (code == cudaErrorNotReady) code = cudaEventSynchronize(event);
  if (code == cudaSuccess) forecast.Observe(Passed(flight, absl::Now()));
  return code;
}

absl::Status CudaStream::AwaitEnd(const Flight& flight) {
  // Of a launch that failed halfway, what was queued still runs, and no event marks its end.
  cudaError_t code = cudaSuccess;
  if (!flight.status.ok()) {
    code = cudaStreamSynchronize(stream_);
    if (code == cudaSuccess && flight.sends > 0) code = sends_.Synchronize();
  } else {
    code = flight.stamps != nullptr ? AwaitStamps(flight) : AwaitEvent(flight);
  }
  if (code == cudaSuccess) return absl::OkStatus();
  const absl::Status status = fence_.Check(code, "running a program");
  return fence_.Raise(status);  // whatever it is, what ran before can no longer be told
}

absl::Status CudaStream::ReadTimes(const Flight& flight, LaunchResult& result) {
  const auto between = [&](size_t first, size_t last, double& seconds) {
    float milliseconds = 0;
    const cudaError_t code =
        cudaEventElapsedTime(&milliseconds, flight.events[first].get(), flight.events[last].get());
    seconds = milliseconds * 1e-3;
    return fence_.Check(code, "reading a program's time");
  };
  const absl::Span<const Program::Step> steps = flight.program->steps();
  absl::Status status;
  if (flight.stamps != nullptr) {
    result.device_seconds = StampedSeconds(flight);
  } else {
    status = between(0, flight.events.size() - 1, result.device_seconds);
  }
  result.op_seconds.reserve(steps.size());
  const bool timed = flight.code().timed();
  result.ops_timed = timed || steps.size() == 1;
  const double estimate = flight.program->estimated_seconds();
  const double of_estimate = result.device_seconds / (estimate > 0 ? estimate : steps.size());
  for (size_t i = 0; i < steps.size() && status.ok(); ++i) {
    double seconds = 0;
    if (timed) {
      status = between(i, i + 1, seconds);
    } else {
      seconds = of_estimate * (estimate > 0 ? steps[i].choice.estimated_seconds : 1);
    }
    result.op_seconds.push_back(static_cast<float>(seconds));
  }
  return status;
}

LaunchResult CudaStream::Finish(Flight& flight) {
  LaunchResult result;
  result.started = flight.launched;
  result.status = flight.status;
  result.stopped = flight.stopped;
  result.way = flight.way;
  result.signalled = flight.signalled;
  if (flight.queued) {
    const absl::Status ended = AwaitEnd(flight);
    const absl::Time seen = absl::Now();
    if (result.status.ok()) result.status = ended;
    // What was launched of a program that was stopped has no event at its end.
    if (flight.stopped != StopCause::kNone) {
      result.device_seconds = std::max(0.0, absl::ToDoubleSeconds(Passed(flight, seen)));
    }
    last_seen_ = seen;
    if (result.status.ok()) result.status = ReadTimes(flight, result);
    if (result.status.ok()) result.status = flight.code().FaultOf(flight.io_data());
    if (result.status.ok()) {
      result.started = std::max(flight.launched, seen - absl::Seconds(result.device_seconds));
      flight.code().CopyOutputs(flight.io_data(), flight.bindings);
    }
  }
  const bool stamped = result.status.ok() && flight.stamps != nullptr;
  last_ended_ns_ = stamped ? flight.stamps->ended_ns : 0;
  Release(flight);
  return result;
}

void CudaStream::Release(Flight& flight) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  flight.events.clear();
  flight.io = PinnedBlock();
  flight.stamps.reset();
  if (flight.graph == nullptr) return;
  flight.graph->busy.store(false, std::memory_order_release);
  flight.graph.reset();
}

}  // namespace gemmd::kernels::cuda
