// Lane: what stands between accepted jobs and one device. It keeps a bounded amount of estimated
// device time launched ahead, so that the device never idles between programs and yet priorities,
// deadlines and cancellation keep their meaning.
//
// There is no hop to a lane thread on the way in: whoever submits also pumps. One thread pumps at a
// time; another that finds it pumping leaves its job and goes. A submitter pumps for a bounded time
// and then hands over to the lane's thread.

#ifndef GEMMD_SERVER_ENGINE_LANE_H_
#define GEMMD_SERVER_ENGINE_LANE_H_

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/fair_queue.h"
#include "server/engine/job.h"
#include "server/engine/lane_metrics.h"
#include "server/engine/metrics.h"
#include "server/engine/timeline.h"

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
       Metrics& metrics, Timeline& timeline);
  ~Lane() { Stop(); }

  // Answers what is queued with UNAVAILABLE and waits for what is launched. Submit refuses from
  // then on.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the job; its `done` will run exactly once, perhaps before this returns. Or refuses it,
  // and `done` never runs: DEADLINE_EXCEEDED when by the estimates it cannot finish in time.
  absl::Status Submit(std::shared_ptr<Job> job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers the job with `status` if it has not been launched; does nothing otherwise.
  void Cancel(const std::shared_ptr<Job>& job, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for every queued job of a session, which is then forgotten.
  void CancelSession(uint64_t session_key, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void Reconfigure(const SchedulerConfig& config) ABSL_LOCKS_EXCLUDED(mutex_);
  LaneStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Ratio of true to estimated time, tracked apart for each power of two of the estimate, because
  // kernels' fixed costs make small programs err differently from large ones.
  class Feedback {
   public:
    Feedback() { ratio_.fill(1.0); }
    double Corrected(double estimate) const;
    void Observe(double estimate, double actual);

   private:
    static int Bucket(double seconds);
    std::array<double, 40> ratio_;
  };

  // `own` is the job that the caller has just submitted: the one that it may wait for.
  void Pump(bool on_lane_thread, const Job* own = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next job to launch, or null when the look-ahead is full or nothing is queued. Jobs that are
  // not to run (late, or behind a failed one) are moved to `dropped`.
  std::shared_ptr<Job> TakeNext(std::vector<std::pair<std::shared_ptr<Job>, absl::Status>>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Launch(std::shared_ptr<Job> job, bool wait) ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(const std::shared_ptr<Job>& job, kernels::LaunchResult launch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets go of what the job holds, answers, and only then lets its session end.
  void Answer(Job& job, JobResult result);
  // The same for a job that was never launched.
  void AnswerUnlaunched(Job& job, absl::Status status);
  // The wait, the run and the ops of a program, for whoever watches.
  void AddToTimeline(const Job& job, const JobResult& result);
  void Run();  // the lane's thread
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const std::string_view device_;  // the backend's name
  LaneMetrics metrics_;
  Timeline& timeline_;
  mutable absl::Mutex mutex_;
  absl::Duration lookahead_ ABSL_GUARDED_BY(mutex_);
  FairQueue queue_ ABSL_GUARDED_BY(mutex_);
  Feedback feedback_ ABSL_GUARDED_BY(mutex_);
  double launched_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t launched_ ABSL_GUARDED_BY(mutex_) = 0;
  double busy_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool handed_over_ ABSL_GUARDED_BY(mutex_) = false;  // the lane's thread is to pump
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<kernels::Stream> stream_;
  std::thread thread_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_LANE_H_
