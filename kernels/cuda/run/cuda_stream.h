// CudaStream: one compute stream of a device, and the thread that reports what ran on it.
//
//   Launch (caller)     bytes of Writes to pinned memory -> event, kernels and copies, event ->
//   queue harvest (thread)    waits for the last event -> bytes of Reads to the caller -> done
//
// A program that runs on memory it ran on before is recorded as a graph, and from then on its
// kernels and copies are one call (graph.h). What runs once is launched op by op.
//
// Results that go to another GPU's memory may leave while the stream goes on (peer_sends.h). The
// mark and the end of such a run come behind them.
//
// Launch never waits for the device, and no work ever runs on the caller's thread.

#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"
#include "kernels/cuda/memory/pinned.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/event_pool.h"
#include "kernels/cuda/run/graph.h"
#include "kernels/cuda/run/graph_cache.h"
#include "kernels/cuda/run/peer_sends.h"
#include "kernels/cuda/run/run_stamps.h"
#include "kernels/cuda/run/stamp_pool.h"

namespace gemmd::kernels::cuda {

// Errors: a program that cannot be queued fails alone. A fatal error of the device fails it and
// everything behind it with the fence's status. What cannot be recorded is launched op by op, then
// and later; LaunchResult::way tells.
//
// Times are the device's, by events. A program that is launched behind several others counts
// from the last one's end, which spares the host an event. Ops of a program that is not timed()
// share its time in proportion to their estimates. `started` is the moment the end was seen less
// the device's time.
//
// A short run of an armed plan tells of its end by a kernel of its own, which leaves the times, too
// (run_stamps.h): the host makes one call for it and none to see its end. With nothing in front it
// is a graph. Behind others its kernels are launched one by one, where that takes the host less
// than it takes the device: each may then start under the end of the one before it, the first
// under the other run's. A run's signal is part of its time, and the time of one with nothing in
// front is what events around it would tell.
class CudaStream final : public Stream {
 public:
  // Graph::Capture, or what a test puts in its place.
  using Capture = absl::StatusOr<std::unique_ptr<Graph>> (*)(cudaStream_t side, Graph::Queue queue);

  // `pinned` and `fence` outlive the stream; the stream's thread runs on the node of `pinned`. When
  // the device refuses a stream, every Launch fails with its status.
  CudaStream(int ordinal, PinnedPool& pinned, Fence& fence, const StreamOptions& options,
             Capture capture = Graph::Capture);
  ~CudaStream() override;

  void Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) override;
  void LaunchAndWait(std::shared_ptr<const Program> program, Bindings bindings, Done done) override;
  bool prefers_one_launcher() const override { return true; }

 private:
  // A program from its launch to its done.
  struct Flight {
    std::shared_ptr<const Program> program;  // shared: a plan's program runs many times at once
    Bindings bindings;
    Done done;
    absl::Time launched;
    absl::Time launch_ended;
    absl::Status status;                   // of the launch
    bool queued = false;                   // something of it may be on the device
    bool signalled = false;                // the device sets bindings.signal
    size_t marked = 0;                     // of bindings.marks, so many are set
    StopCause stopped = StopCause::kNone;  // before all of it was launched
    LaunchWay way = LaunchWay::kOps;
    std::shared_ptr<CachedGraph> graph;  // that it runs as; null when op by op
    StampsRef stamps;                    // that its last kernel fills; null: there are events
    PinnedBlock io;                      // unless it is the graph's
    std::vector<EventRef> events;        // the start, the ends of ops if timed, the end
    bool follows = false;                // the start is the end of the program before it
    int sends = 0;                       // results, by sends_
    bool begins = false;                 // by a kernel of its own; of a graph that is a node
    bool waited_for = false;             // by LaunchAndWait's caller: nothing holds its answer

    // How it shows: by stamps, or by an event.
    struct End {
      EventRef event;
      StampsRef stamps;
    };
    End end() const { return {stamps != nullptr ? EventRef() : events.back(), stamps}; }

    const CudaProgram& code() const { return static_cast<const CudaProgram&>(*program); }
    // Whether it takes about as long as the run before it: one that is still to become a graph, or
    // that could not, goes as fast as the host launches.
    bool steady() const { return way == LaunchWay::kGraph || !code().capturable(); }
    bool often() const { return bindings.signal != nullptr; }  // an armed plan's, which is rung
    bool brief() const;         // its end is looked for, and not slept for
    bool takes_stamps() const;  // rather than events
    bool lets_host_keep_ahead() const;
    std::byte* io_data() const { return graph != nullptr ? graph->io.data() : io.data(); }
  };

  // On the caller's thread.
  Flight Take(std::shared_ptr<const Program> program, Bindings bindings, Done done);
  void GiveToHarvest(Flight flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void Queue(Flight flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Start(Flight& flight);
  absl::Status TakeIo(Flight& flight);
  absl::Status TakeEvents(Flight& flight);
  absl::Status GrowScratch(int64_t bytes);
  // Finds flight.graph, or makes it, or gets ready to go without: `launches` then are its.
  absl::Status ChooseWay(Flight& flight, std::shared_ptr<const Launches>& launches);
  // Whether it surely starts when the last one ends.
  bool Follows(const Flight& flight) const;
  // Whether nothing is in front of it, but perhaps for a run that just ends.
  bool IsFirst() const;
  // Makes flight.graph, with flight.io in it, or leaves both as they are.
  void MakeGraph(Flight& flight, const Launches& launches, GraphKey key);
  // What events around a run count beyond its stamps: a part of starting and ending kernels. Waits
  // for the device.
  absl::StatusOr<double> MeasureEventShare();
  void TakeStamps(Flight& flight, bool chained);
  absl::Status MakeStamps(StampsRef& stamps);
  RunEnd EndOf(const Flight& flight, const StampsRef& stamps, bool began) const;
  // CANCELLED when nothing more of it is to be given to the device.
  absl::Status CheckStop(Flight& flight) const;
  absl::Status LaunchGraph(Flight& flight);
  bool GoesOn(const Flight& flight) const;
  RunContext::Front FrontOf(const Flight& flight) const;
  absl::Status LaunchOps(Flight& flight, const Launches& launches);
  absl::Status Record(Flight& flight, size_t event, cudaStream_t stream);
  // Where what tells of a run's ops so far belongs. Behind its sends alone, unless `all`: what they
  // sent is then the last that it did.
  absl::StatusOr<cudaStream_t> BehindOps(const Flight& flight, bool all);
  // Those of ops up to `op` that are not set yet.
  absl::Status SetMarks(Flight& flight, int op, bool all);
  absl::Status End(Flight& flight, bool sends_last = false);
  absl::Status Signal(Flight& flight);
  absl::Status WakeWaiting(const Flight& flight);

  // On the harvest thread, or on a caller's that found nothing in flight.
  void Harvest() ABSL_LOCKS_EXCLUDED(mutex_);
  LaunchResult Finish(Flight& flight);
  void Release(Flight& flight);
  void Linger(int64_t taken, absl::Duration most) const;  // in case more than `taken` come
  // A sleeping thread wakes tens of microseconds late, as long as a small program takes. So the end
  // of a brief() program is looked for: all the time for longer than it should take, and every
  // kLateLook from there on.
  static constexpr absl::Duration kLateLook = absl::Microseconds(100);
  static absl::Duration PollTime(double expected_seconds);
  static cudaError_t PollEvent(cudaEvent_t event, absl::Duration most);
  static cudaError_t PollStamps(const RunStamps& stamps, absl::Duration most);
  static cudaError_t PollEnd(const Flight::End& end, absl::Duration most);
  cudaError_t AwaitEvent(const Flight& flight);
  cudaError_t AwaitStamps(const Flight& flight);
  absl::Duration Passed(const Flight& flight, absl::Time now) const;  // since it could begin
  absl::Status AwaitEnd(const Flight& flight);
  absl::Status ReadTimes(const Flight& flight, LaunchResult& result);
  double StampedSeconds(const Flight& flight) const;

  const int ordinal_;
  PinnedPool& pinned_;
  Fence& fence_;
  absl::Status ready_;  // of stream_
  cudaStream_t stream_ = nullptr;
  // Where graphs are recorded: by themselves, since the harvest thread may wait for stream_ at any
  // time, which would spoil a recording there. Touched by Launch only.
  cudaStream_t side_ = nullptr;
  const double waited_below_seconds_;
  const Capture capture_;
  EventPool events_;
  StampPool stamps_;
  EventRef last_end_;              // of what was launched last; touched by Launch only
  bool last_stamped_ = false;      // it left none, but stamps; touched by Launch only
  bool last_sent_ = false;         // by sends_, which its end is behind; touched by Launch only
  bool ends_with_kernel_ = false;  // it did, launched by itself; touched by Launch only
  std::atomic<int> in_flight_ = 0;
  // The end before, as it was seen and by its stamp, if it had one. Touched by whose turn it is to
  // finish.
  absl::Time last_seen_;
  uint64_t last_ended_ns_ = 0;
  GraphCache graphs_;  // touched by Launch only
  // Written by one program after the other, in stream order; replaced in stream order too, so that
  // what is in flight keeps its own. Touched by Launch only.
  std::byte* scratch_ = nullptr;
  PeerSends sends_;            // touched by Launch only, but for Synchronize
  uint64_t* began_ = nullptr;  // the device's: of the run that told its start last
  double event_share_ = 0;     // seconds; of MeasureEventShare
  int64_t scratch_bytes_ = 0;
  absl::Mutex mutex_;
  std::deque<Flight> queue_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> given_ = 0;  // to queue_, since the beginning
  // From when a program's end is first looked for until its done has returned: whose turn it is.
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gemmd::kernels::cuda
