#include "kernels/cuda/run/cuda_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/nvtx.h"
#include "kernels/cuda/run/run_stamps.h"
#include "kernels/cuda/run/stream_mark.h"
#include "kernels/cuda/run/stream_signal.h"
#include "kernels/cuda/sm90/launch/scratch_front.h"

namespace gemmd::kernels::cuda {
namespace {

// A caller that waits anyway is as well served by looking itself: a program with half a megabyte of
// inline data each way takes 60 us, and its answer came 50 us sooner than from the harvest thread.
constexpr double kWaitedSeconds = 200e-6;

double WaitedBelow(absl::Duration inline_below) {
  const double seconds = absl::ToDoubleSeconds(inline_below);
  return seconds > 0 ? std::max(seconds, kWaitedSeconds) : 0;
}

// Launched between two looks at whether the program is to stop: some tens of microseconds.
constexpr size_t kOpsALook = 16;
constexpr int64_t kMinScratchBytes = 1 << 20;
constexpr size_t kMostNodesOfAnOp =
    6;  // a grouped matmul: directory, scales, few and many rows, owners, gate
constexpr size_t kStampNodes = 2;

}  // namespace

CudaStream::CudaStream(int ordinal, PinnedPool& pinned, Fence& fence, const StreamOptions& options,
                       Capture capture)
    : ordinal_(ordinal),
      pinned_(pinned),
      fence_(fence),
      waited_below_seconds_(WaitedBelow(options.inline_below)),
      capture_(capture),
      events_(fence),
      stamps_(pinned) {
  ready_ = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  for (cudaStream_t* stream : {&stream_, &side_}) {
    if (!ready_.ok()) break;
    ready_ =
        fence_.Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
  }
  if (ready_.ok() && CanSignal()) event_share_ = MeasureEventShare().value_or(0);
  thread_ = std::thread([this] { Harvest(); });
}

CudaStream::~CudaStream() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
  if (stream_ == nullptr) return;
  fence_.Check(cudaSetDevice(ordinal_), "choosing the device").IgnoreError();
  graphs_.Clear();
  std::byte* const scratch = scratch_ != nullptr ? scratch_ - kScratchFront : nullptr;
  for (void* memory : {static_cast<void*>(scratch), static_cast<void*>(began_)}) {
    if (memory == nullptr) continue;
    fence_.Check(cudaFreeAsync(memory, stream_), "freeing scratch").IgnoreError();
  }
  fence_.Check(cudaStreamSynchronize(stream_), "ending a stream").IgnoreError();
  for (cudaStream_t stream : {stream_, side_}) {
    if (stream == nullptr) continue;
    fence_.Check(cudaStreamDestroy(stream), "ending a stream").IgnoreError();
  }
}

void CudaStream::Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) {
  GiveToHarvest(Take(std::move(program), std::move(bindings), std::move(done)));
}

// Spares the harvest thread's wake and whatever it costs to answer from there.
void CudaStream::GiveToHarvest(Flight flight) {
  // A program that failed takes its place in the queue: `done`s run in launch order.
  absl::MutexLock lock(&mutex_);
  Queue(std::move(flight));
}

void CudaStream::Queue(Flight flight) {
  queue_.push_back(std::move(flight));
  given_.fetch_add(1, std::memory_order_relaxed);
}

CudaStream::Flight CudaStream::Take(std::shared_ptr<const Program> program, Bindings bindings,
                                    Done done) {
  Flight flight;
  flight.program = std::move(program);
  flight.bindings = std::move(bindings);
  flight.done = std::move(done);
  flight.launched = absl::Now();
  {
    const LaunchRange range(flight.code().serial(), flight.program->steps());
    flight.status = Start(flight);
  }
  flight.launch_ended = absl::Now();
  // Of a launch that failed halfway no end is recorded.
  last_stamped_ = flight.status.ok() && flight.stamps != nullptr;
  const bool has_end = flight.status.ok() && !last_stamped_;
  last_end_ = has_end ? flight.events.back() : EventRef();
  last_sent_ = flight.sends > 0;
  ends_with_kernel_ =
      flight.status.ok() && flight.graph == nullptr && flight.code().ends_with_kernel();
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  return flight;
}

absl::Status CudaStream::CheckStop(Flight& flight) const {
  const Stop* const stop = flight.bindings.stop;
  if (stop == nullptr) return absl::OkStatus();
  if (stop->asked()) {
    flight.stopped = StopCause::kAsked;
  } else if (stop->deadline() < absl::InfiniteFuture() && absl::Now() >= stop->deadline()) {
    flight.stopped = StopCause::kDeadline;
  } else {
    return absl::OkStatus();
  }
  return absl::CancelledError("stopped before all of it was launched");
}

absl::Status CudaStream::Start(Flight& flight) {
  const CudaProgram& code = flight.code();
  absl::Status status = fence_.status();
  if (status.ok()) status = CheckStop(flight);
  if (status.ok()) status = ready_;
  if (status.ok()) status = code.CheckBindings(flight.bindings);
  if (status.ok()) status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  if (status.ok()) status = GrowScratch(code.scratch_bytes());
  std::shared_ptr<const Launches> launches;
  if (status.ok()) status = ChooseWay(flight, launches);
  if (status.ok()) status = TakeEvents(flight);
  if (!status.ok()) return status;
  Graph* const graph = flight.graph != nullptr ? flight.graph->graph.get() : nullptr;
  status = fence_.Check(code.AimReads(flight.bindings, flight.io_data(), graph));
  if (!status.ok()) return status;
  code.CopyInputs(flight.bindings, flight.io_data());
  flight.queued = true;
  status = fence_.Check(WaitForMarks(flight.bindings.after, stream_), "waiting for other streams");
  if (!status.ok()) return status;
  return flight.graph != nullptr ? LaunchGraph(flight) : LaunchOps(flight, *launches);
}

absl::StatusOr<cudaStream_t> CudaStream::BehindOps(const Flight& flight, bool all) {
  if (flight.sends == 0) return stream_;
  absl::StatusOr<cudaStream_t> behind = sends_.Behind(stream_, all);
  if (!behind.ok()) return fence_.Check(behind.status());
  return behind;
}

absl::Status CudaStream::SetMarks(Flight& flight, int op, bool all) {
  const std::vector<MarkBehind>& marks = flight.bindings.marks;
  for (; flight.marked < marks.size() && marks[flight.marked].op <= op; ++flight.marked) {
    const absl::StatusOr<cudaStream_t> stream = BehindOps(flight, all);
    if (!stream.ok()) return stream.status();
    const cudaError_t code = SetMark(*marks[flight.marked].mark, *stream);
    if (code != cudaSuccess) return fence_.Check(code, "setting a mark for other streams");
  }
  return absl::OkStatus();
}

// The signal first: a caller waits for it, and for the event only what the host does afterwards.
absl::Status CudaStream::End(Flight& flight, bool sends_last) {
  const absl::StatusOr<cudaStream_t> stream = BehindOps(flight, /*all=*/!sends_last);
  if (!stream.ok()) return stream.status();
  const int last = static_cast<int>(flight.code().steps().size());
  if (absl::Status set = SetMarks(flight, last, /*all=*/false); !set.ok()) return set;
  if (flight.stamps != nullptr) {
    if (flight.graph == nullptr) {
      const cudaError_t code = LaunchEnd(EndOf(flight, flight.stamps, flight.begins),
                                         flight.code().ends_with_kernel(), stream_);
      if (code != cudaSuccess) return fence_.Check(code, "launching a run's last kernel");
    }
    flight.signalled = true;
    return WakeWaiting(flight);
  }
  const absl::Status status = Signal(flight);
  return status.ok() ? Record(flight, flight.events.size() - 1, *stream) : status;
}

absl::Status CudaStream::Signal(Flight& flight) {
  // Of numbers that cannot be the host is to tell, and a signal would come before it.
  if (flight.bindings.signal == nullptr || flight.code().may_fault()) return absl::OkStatus();
  const absl::Status status = fence_.Check(QueueSignal(stream_, flight.bindings.signal, 1));
  flight.signalled = status.ok();
  return status;
}

absl::Status CudaStream::ChooseWay(Flight& flight, std::shared_ptr<const Launches>& launches) {
  const CudaProgram& code = flight.code();
  const bool first = IsFirst();
  const bool stamped = flight.takes_stamps() && (first || flight.lets_host_keep_ahead());
  const bool chained = stamped && !first;
  bool capture = !chained && code.capturable();
  GraphKey key;
  if (capture) {
    key = code.KeyOf(flight.bindings.slots, scratch_);
    if (stamped) key.signal = flight.bindings.signal;
    flight.graph = graphs_.Find(key);
    if (flight.graph != nullptr && flight.graph->graph != nullptr) {
      flight.stamps = flight.graph->stamps;
      return absl::OkStatus();
    }
    capture = flight.graph == nullptr;
    flight.graph.reset();
  }
  if (absl::Status status = TakeIo(flight); !status.ok()) return status;
  // What rings is signalled by the stream itself, which would have to wait for what is sent.
  PeerSends* const sends = flight.often() ? nullptr : &sends_;
  absl::StatusOr<PreparedLaunches> prepared =
      code.Prepare(flight.bindings.slots, scratch_, sends, stream_);
  if (!prepared.ok()) return fence_.Check(prepared.status());
  launches = std::move(prepared->launches);
  flight.sends = launches->sends;
  capture &= flight.sends == 0;
  // The first run on some memory may be the only one, and capturing takes as long as a few runs.
  if (capture && prepared->again && !code.CopiesAcross(flight.bindings.slots)) {
    MakeGraph(flight, *launches, std::move(key));
  }
  if (stamped && flight.graph == nullptr) TakeStamps(flight, chained);
  return fence_.status();
}

void CudaStream::MakeGraph(Flight& flight, const Launches& launches, GraphKey key) {
  const CudaProgram& code = flight.code();
  const auto nodes = static_cast<int64_t>(kMostNodesOfAnOp * code.steps().size() + kStampNodes);
  if (!graphs_.MakeRoom(nodes, code.io_bytes())) return;
  const bool stamped = key.signal != nullptr;
  StampsRef stamps;
  if (stamped && !fence_.Check(MakeStamps(stamps)).ok()) return;
  const auto queue = [&](cudaStream_t side) {
    const RunContext context{flight.bindings.slots,
                             launches,
                             scratch_,
                             flight.io.data(),
                             side,
                             /*outputs=*/{},
                             stamped ? RunContext::Front::kOwnBegin : RunContext::Front::kOther};
    absl::Status status;
    if (stamped) status = ToStatus(LaunchBegin(began_, side), "recording a run's first kernel");
    for (size_t i = 0; i < code.steps().size() && status.ok(); ++i) {
      status = code.LaunchStep(i, context);
    }
    if (!stamped || !status.ok()) return status;
    return ToStatus(LaunchEnd(EndOf(flight, stamps, /*began=*/true), code.ends_with_kernel(), side),
                    "recording a run's last kernel");
  };
  absl::StatusOr<std::unique_ptr<Graph>> graph = capture_(side_, queue);
  const absl::Status status = graph.ok() ? (*graph)->Upload(stream_) : graph.status();
  if (!status.ok()) {
    fence_.Check(status).IgnoreError();
    flight.way = LaunchWay::kCaptureFailed;
    graphs_.Refuse(std::move(key), flight.program);
    return;
  }
  flight.graph = std::make_shared<CachedGraph>();
  flight.stamps = flight.graph->stamps = std::move(stamps);
  flight.graph->graph = *std::move(graph);
  flight.graph->io = std::move(flight.io);
  flight.graph->io_bytes = code.io_bytes();
  flight.graph->busy.store(true, std::memory_order_relaxed);
  graphs_.Add(std::move(key), flight.program, flight.graph);
}

// The end's event stays outside of the graph: that is what the harvest thread asks for. So does the
// start's, and on an idle device the time between them counts the few microseconds that the launch
// takes the host. An armed plan's graph that has stamps has neither.
absl::Status CudaStream::LaunchGraph(Flight& flight) {
  flight.way = LaunchWay::kGraph;
  absl::Status status = fence_.Check(sends_.Join(stream_));  // its kernels may store where they go
  if (status.ok()) status = Record(flight, 0, stream_);
  if (status.ok()) {
    status = fence_.Check(flight.graph->graph->Launch(stream_), "launching a graph");
  }
  return status.ok() ? End(flight) : status;
}

absl::Status CudaStream::GrowScratch(int64_t bytes) {
  if (bytes <= scratch_bytes_) return absl::OkStatus();
  const int64_t size = std::max({bytes, 2 * scratch_bytes_, kMinScratchBytes});
  void* grown = nullptr;
  absl::Status status =
      fence_.Check(cudaMallocAsync(&grown, static_cast<size_t>(size + kScratchFront), stream_),
                   absl::StrCat("allocating ", size, " bytes of scratch memory"));
  if (status.ok()) {
    status = fence_.Check(cudaMemsetAsync(grown, 0, kScratchFront, stream_), "clearing its front");
  }
  if (!status.ok()) return status;
  std::byte* const old = std::exchange(scratch_, static_cast<std::byte*>(grown) + kScratchFront);
  scratch_bytes_ = size;
  // Freed once the programs launched so far are through.
  if (old != nullptr) {
    status = fence_.Check(cudaFreeAsync(old - kScratchFront, stream_), "freeing scratch");
  }
  return status;
}

absl::Status CudaStream::TakeIo(Flight& flight) {
  if (flight.code().io_bytes() == 0) return absl::OkStatus();
  absl::StatusOr<PinnedBlock> io = pinned_.Take(flight.code().io_bytes());
  if (io.ok()) flight.io = *std::move(io);
  return io.status();
}

// One that is under way may end at any moment: two do not.
bool CudaStream::IsFirst() const { return in_flight_.load(std::memory_order_relaxed) <= 1; }

// The end of one that sent results lies behind what it sent, and so does the next one's if that
// sends, too.
bool CudaStream::Follows(const Flight& flight) const {
  return last_end_ != nullptr && !IsFirst() && (!last_sent_ || flight.sends > 0);
}

absl::Status CudaStream::TakeEvents(Flight& flight) {
  if (flight.stamps != nullptr) {
    std::atomic_ref(flight.stamps->ended).store(0, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  const size_t count = flight.code().timed() ? flight.code().steps().size() + 1 : 2;
  flight.events.reserve(count);
  // Its time does not count what it waits for other streams, unless it may start under the end of
  // the one in front: an event of its own between the two would keep it from that.
  flight.follows = Follows(flight) && (flight.bindings.after.empty() || GoesOn(flight));
  if (flight.follows) flight.events.push_back(last_end_);
  while (flight.events.size() < count) {
    const bool last = flight.events.size() + 1 == count;
    absl::StatusOr<EventRef> event =
        events_.Take(last && !flight.brief() ? Awaited::kAsleep : Awaited::kByAsking);
    if (!event.ok()) return event.status();
    flight.events.push_back(*std::move(event));
  }
  return absl::OkStatus();
}

absl::Status CudaStream::Record(Flight& flight, size_t event, cudaStream_t stream) {
  if (flight.stamps != nullptr || (event == 0 && flight.follows)) return absl::OkStatus();
  return fence_.Check(cudaEventRecord(flight.events[event].get(), stream), "recording an event");
}

// A part of a split program does where the one in front of it ended: waits are all that lies
// between, and its first kernel's start need not be added to theirs.
bool CudaStream::GoesOn(const Flight& flight) const {
  return ends_with_kernel_ && flight.stamps == nullptr && !flight.bindings.after.empty();
}

RunContext::Front CudaStream::FrontOf(const Flight& flight) const {
  if (flight.stamps == nullptr) {
    return GoesOn(flight) ? RunContext::Front::kRun : RunContext::Front::kOther;
  }
  return flight.begins ? RunContext::Front::kOwnBegin : RunContext::Front::kRun;
}

absl::Status CudaStream::LaunchOps(Flight& flight, const Launches& launches) {
  const CudaProgram& code = flight.code();
  const RunContext context{flight.bindings.slots, launches, scratch_,
                           flight.io_data(),      stream_,  flight.bindings.outputs,
                           FrontOf(flight),       &sends_};
  const size_t count = code.steps().size();
  size_t event = 0;
  absl::Status status = fence_.Check(sends_.Await(flight.sends, stream_));
  if (status.ok()) status = Record(flight, event++, stream_);
  if (status.ok() && flight.begins) {
    status = fence_.Check(LaunchBegin(began_, stream_), "launching a run's first kernel");
  }
  for (size_t i = 0; i < count && status.ok(); ++i) {
    if (i % kOpsALook == kOpsALook - 1) status = CheckStop(flight);
    if (status.ok()) status = fence_.Check(code.LaunchStep(i, context));
    if (status.ok() && i + 1 < count) {
      status = SetMarks(flight, static_cast<int>(i), /*all=*/!launches.Sends(i));
    }
    if (status.ok() && code.timed() && i + 1 < count) status = Record(flight, event++, stream_);
  }
  return status.ok() ? End(flight, count > 0 && launches.Sends(count - 1)) : status;
}

}  // namespace gemmd::kernels::cuda
