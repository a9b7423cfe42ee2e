// Lane: what stands between accepted jobs and one device. It keeps a bounded amount of estimated
// device time launched ahead, so that the device never idles between programs and yet priorities,
// deadlines and cancellation keep their meaning.
//
// There is no hop to a lane thread on the way in: whoever submits also pumps. One thread pumps at a
// time; another that finds it pumping leaves its job and goes. A submitter pumps for a bounded time
// and then hands over to the lane's thread; where launches are dear, at once if there is a backlog
// or the job says so, and that thread then stays awake for a while. Rings are launched by who polls
// for them.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/observe/lane_metrics.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/observe/timeline.h"
#include "server/engine/scheduling/estimate_feedback.h"
#include "server/engine/scheduling/fair_queue.h"
#include "server/engine/scheduling/job.h"
#include "server/engine/scheduling/launched_work.h"
#include "server/engine/tuning/served_shapes.h"

namespace gemmd::server {

struct LaneStats {
  int64_t queued = 0;         // not yet launched
  int64_t launched = 0;       // on the device or next to be
  double queued_seconds = 0;  // estimated, launched included
  double busy_seconds = 0;    // device time since start
  int64_t completed = 0;      // programs since start
};

class Lane {
 public:
  Lane(kernels::Backend& backend, const SchedulerConfig& config, const Clock& clock,
       Metrics& metrics, Timeline& timeline, LaneKind kind = LaneKind::kPrograms);
  ~Lane() { Stop(); }

  // Answers what is queued with UNAVAILABLE and waits for what is launched. Submit refuses from
  // then on.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the job; its `done` will run exactly once, perhaps before this returns. Or refuses it,
  // and `done` never runs: DEADLINE_EXCEEDED when by the estimates it cannot finish in time.
  absl::Status Submit(std::shared_ptr<Job> job) { return Submit(std::move(job), clock_.Now()); }
  // The same, for a caller that has just read the lane's clock.
  absl::Status Submit(std::shared_ptr<Job> job, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers the job with `status` if it has not been launched; does nothing otherwise.
  void Cancel(const std::shared_ptr<Job>& job, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers every queued job of a session, which is then forgotten, and stops those that run. The
  // answers have the code and reason of `why`, and tell its message and how far the program came.
  void CancelSession(uint64_t session_key, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for every session's.
  void CancelAll(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  void Reconfigure(const SchedulerConfig& config) ABSL_LOCKS_EXCLUDED(mutex_);
  LaneStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  const ServedShapes& served() const { return served_; }

 private:
  // DEADLINE_EXCEEDED when by the estimates it cannot finish in time.
  absl::Status CheckDeadline(const Job& job, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts it into the queue, or refuses it.
  absl::Status Accept(const std::shared_ptr<Job>& job, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(bool on_lane_thread, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody pumps, nor is to.
  bool MayPump(bool on_lane_thread) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !pumping_ && (on_lane_thread || !handed_over_);
  }
  // When MayPump. Lets go of the lock. `own` is the job that the caller has just submitted: the one
  // that it may wait for.
  void PumpLocked(bool on_lane_thread, absl::Time now, const Job* own) ABSL_UNLOCK_FUNCTION(mutex_);
  // The next job to launch, or null when the look-ahead is full or nothing is queued. Jobs that are
  // not to run (late, or behind a failed one) are moved to `dropped`.
  std::shared_ptr<Job> TakeNext(absl::Time now,
                                std::vector<std::pair<std::shared_ptr<Job>, absl::Status>>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From `begin`, which is now. Returns when it was launched.
  absl::Time Launch(std::shared_ptr<Job> job, bool wait, absl::Time begin)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes every job out of the queue.
  std::vector<std::shared_ptr<Job>> TakeQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks launched jobs to stop: of one session, or all.
  void StopLaunched(std::optional<uint64_t> session_key, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether what is queued is now the lane's thread's to launch.
  bool LeaveToLauncher(const Job* own) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When what is launched leaves room for more, if that is well before the next program ends.
  absl::Time NextLook(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(const std::shared_ptr<Job>& job, kernels::LaunchResult launch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets go of what the job holds, answers, and only then lets its session end.
  void Answer(Job& job, JobResult result);
  // The same for a job that was never launched.
  void AnswerUnlaunched(Job& job, absl::Status status);
  // The wait, the run and the ops of a program, for whoever watches.
  void AddToTimeline(const Job& job, const JobResult& result);
  void Run();     // the lane's thread
  void Linger();  // it does, in case more is left to it
  bool Await();   // until there is something to do for it; false: to end
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const std::string track_;  // in the timeline
  LaneMetrics metrics_;
  Timeline& timeline_;
  ServedShapes served_;
  mutable absl::Mutex mutex_;
  absl::Duration lookahead_ ABSL_GUARDED_BY(mutex_);
  FairQueue queue_ ABSL_GUARDED_BY(mutex_);
  EstimateFeedback feedback_ ABSL_GUARDED_BY(mutex_);
  LaunchedWork launched_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job*> launched_jobs_ ABSL_GUARDED_BY(mutex_);  // which they are; the stream has them
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of the lane's thread
  double busy_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool handed_over_ ABSL_GUARDED_BY(mutex_) = false;  // the lane's thread is to pump
  bool lingering_ ABSL_GUARDED_BY(mutex_) = false;    // the lane's thread is awake
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Programs that nobody waits for on the stream, since callers met here.
  uint8_t crowded_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> called_ = false;  // as handed_over_ or stopping_, for the thread that lingers
  std::unique_ptr<kernels::Stream> stream_;
  const bool one_launcher_;  // as stream_ prefers
  std::thread thread_;
};

}  // namespace gemmd::server
