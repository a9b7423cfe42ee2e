// ArmedRegion: the armed plans of one session. Each stands in a slot of memory that the client
// shares; a ring there, which the daemon's poller sees, becomes a Job like any other.
//
//   region->Arm(std::move(use), plan_id, rebind, options)   // gRPC: checked, bound, charged
//   region->Poll()                                          // the poller: takes rings, submits
//   region->End()                                           // the session has ended
//
// A slot has several runs unanswered: a GPU's stream tells the client of an end before the daemon's
// host knows, and the next ring must not wait for that. A host thread that slept is late by some
// short runs.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/armed/armed_memory.h"
#include "server/engine/armed/armed_waker.h"
#include "server/engine/clock.h"
#include "server/engine/observe/armed_metrics.h"
#include "server/engine/observe/span_queue.h"
#include "server/engine/scheduling/job_blocks.h"
#include "server/engine/scheduling/run.h"

namespace gemmd::server {

struct ArmOptions {
  Priority priority = Priority::kNormal;
  bool rung_by_stream = false;
  absl::Duration deadline = absl::InfiniteDuration();  // from each ring
};

// What regions need of the server. Outlives them.
struct ArmedEnvironment {
  const Clock& clock;
  ArmedWaker& waker;
  ArmedMetrics& metrics;
  SpanQueue& spans;
  std::function<absl::Status()> check_open;  // whether new work is taken
  std::function<void(const Tenant&, const absl::Status&)> count_rejection;
};

// Thread-safe. Shared by its session, the poller, and runs under way.
class ArmedRegion : public std::enable_shared_from_this<ArmedRegion> {
 public:
  static constexpr int kDefaultSlots = 64;
  static constexpr int kMostUnanswered = 8;

  // For the session's own device and others of its process. `slots` as gemmd_armed_region.h allows,
  // rounded up.
  static absl::StatusOr<std::shared_ptr<ArmedRegion>> Create(Session& session, Device& home,
                                                             int slots,
                                                             const ArmedEnvironment& environment);
  ~ArmedRegion();

  int slots() const { return memory_->slots(); }
  int64_t size_bytes() const { return memory_->size_bytes(); }
  int memfd() const { return memory_->memfd(); }
  int wake_fd() const { return wake_.get(); }  // the client writes to it
  uint64_t key() const { return session_key_; }

  struct Armed {
    int slot = 0;
    std::shared_ptr<const Plan> plan;
    bool done_by_stream = false;
  };
  absl::StatusOr<Armed> Arm(SessionUse use, const Handle& plan_id, std::vector<Rebinding> rebind,
                            const ArmOptions& options) ABSL_LOCKS_EXCLUDED(mutex_);
  // All or none: NOT_FOUND for a slot that is not armed.
  absl::Status Disarm(const std::vector<int>& slots) ABSL_LOCKS_EXCLUDED(mutex_);

  struct SlotInfo {
    int slot = 0;
    Handle plan_id;
    std::string label, device;
    ArmOptions options;
    bool running = false;
    int64_t runs = 0, failed_runs = 0;
    absl::Status last;  // of the last run, or why every further ring fails
  };
  std::vector<SlotInfo> List() const ABSL_LOCKS_EXCLUDED(mutex_);

  // What these name is gone: slots that use it fail every further ring.
  void ForgetPlan(const Handle& plan_id) ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetBuffers(absl::Span<const Handle> handles) ABSL_LOCKS_EXCLUDED(mutex_);
  // The session has ended: what is rung fails, and nothing is taken from now on.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);

  // The poller's. Poll takes what is rung, at most some 30 slots at a time, and submits it; true
  // when there was any.
  bool Poll() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasRings() const;
  bool rung_by_stream() const { return stream_slots_.load(std::memory_order_relaxed) > 0; }
  bool ended() const { return gone_.load(std::memory_order_relaxed); }
  uint64_t ends() const { return ends_.load(std::memory_order_relaxed); }  // of runs
  void SetPollerSleeps(bool sleeps) { memory_->SetPollerSleeps(sleeps); }

 private:
  // Immutable: what a slot runs. Shared by the slot and by its runs under way.
  struct Program {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const BoundBuffers> buffers;
    std::shared_ptr<const kernels::Program> poison;  // null when there is nothing to fill
    Peers peers;
    ArmOptions options;
    std::byte* done_word = nullptr;  // on the device; null when the host sets it
  };
  struct Run {
    int slot = 0;
    absl::Time taken;
    std::shared_ptr<const Program> program;  // null when it was refused before one was known
    bool refused = false;                    // it never went to a lane
  };
  // Of a run that is under way; it keeps the region.
  struct RunJob final : Job {
    RunJob(std::shared_ptr<ArmedRegion> region, Run run)
        : region(std::move(region)), run(std::move(run)) {}
    std::shared_ptr<ArmedRegion> region;
    Run run;
  };
  struct EndedRun {
    Run run;
    JobResult result;
  };
  struct Slot {
    std::shared_ptr<const Program> program;  // null when nothing is armed, or it is gone
    std::optional<SlotInfo> info;            // none: not armed
    absl::Status refusal;                    // of every ring, when what was armed is gone
    std::vector<Handle> handles;             // of the buffers
    Charge charge;
    int unanswered = 0;
    std::vector<std::shared_ptr<Job>> jobs;  // submitted and not answered
    // Refused while a run before it is unanswered; until it is answered the slot is not watched.
    std::optional<EndedRun> deferred;
  };

  ArmedRegion(Session& session, Device& home, std::unique_ptr<ArmedMemory> memory, UniqueFd wake,
              Charge host_bytes, const ArmedEnvironment& environment);
  absl::StatusOr<std::shared_ptr<Program>> Prepare(RunRequest request, const ArmOptions& options);
  absl::StatusOr<int> Place(std::shared_ptr<Program> program, SlotInfo info, Charge charge,
                            std::vector<Handle> handles) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Names(absl::Span<const Handle> handles) const ABSL_LOCKS_EXCLUDED(mutex_);
  template <typename Predicate>
  void Forget(const absl::Status& status, Predicate uses) ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch(int slot, bool on);
  // A slot with nothing in it; -1 when there is none.
  int FreeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Empty(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // armed_run.cc: a ring, on the poller's thread.
  void Take(int slot) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckRing(int slot, const Slot& state, uint32_t gate) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Submit(const Run& run) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::shared_ptr<RunJob>> MakeJob(const Run& run);
  // And its end, on any thread.
  void Answered(RunJob& job, JobResult result) ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(int slot, const Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ended(Run run, JobResult result) ABSL_LOCKS_EXCLUDED(mutex_);
  bool SubmitPoison(const Run& run, JobResult& result) ABSL_LOCKS_EXCLUDED(mutex_);
  // `job`: that ran it and is forgotten now; null when it is already.
  void Finish(Run run, JobResult result, const Job* job = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(const EndedRun& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OfferSpan(const EndedRun& ended) const;

  const std::weak_ptr<Session> session_;
  Tenant& tenant_;
  const uint64_t session_key_;
  Device& home_;
  const Charge host_bytes_;
  const std::unique_ptr<ArmedMemory> memory_;
  const UniqueFd wake_;
  const ArmedEnvironment& environment_;
  const std::shared_ptr<JobBlocks> blocks_ = std::make_shared<JobBlocks>();
  std::vector<std::atomic<uint32_t>> watch_;  // by line of gates: slots whose rings are taken
  std::atomic<size_t> lines_;                 // of those, the first ones that have been in use
  size_t first_line_ = 0;                     // where the poller's next look begins
  std::atomic<int> stream_slots_{0};
  std::atomic<uint64_t> ends_{0};
  std::atomic<bool> gone_{false};  // as ended_, for the poller, which then lets go of it
  mutable absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);  // of `lines_`
  int none_free_below_ ABSL_GUARDED_BY(mutex_) = 0;
  // By the plans and buffers that slots name, how many do: most that are deleted are in none.
  absl::flat_hash_map<Handle, int> named_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
