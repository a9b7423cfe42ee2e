// SplitRun: a run of a split program. Its parts are jobs of their devices' lanes, charged, queued
// and cancelled as any others are; it gives them to the lanes and makes one result of theirs.
//
// A part that waits for another lane's is submitted when that one is launched, and the device waits
// for its mark. What it waits for was launched before it, on every lane and in every program, so
// devices never wait in a circle, and a lane waits for another for no longer than that one's
// look-ahead. A backend without marks has parts wait for the end as the host sees it.

#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/scheduling/job.h"
#include "server/engine/scheduling/split_program.h"

namespace gemmd::server {

// Thread-safe. Lives until its last part is answered.
class SplitRun : public std::enable_shared_from_this<SplitRun> {
 public:
  // `whole` has what all parts have in common, and `done`, which is called with the result of all:
  // the first failure, or how long they took from the first start to the last end, over all
  // devices. Its `program` and `peers` are not used.
  SplitRun(std::shared_ptr<const SplitProgram> program, std::shared_ptr<Job> whole);

  // Once. `done` may have run when it returns.
  void Start() { Advance(); }
  // Answers with `status` if no part of it has been launched; does nothing otherwise.
  void Cancel(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Part = SplitProgram::Part;
  struct State {
    int waits = 0;               // for parts of other lanes, and for the one before it in its lane
    std::vector<int> followers;  // on other lanes
    int next_in_lane = -1;
    std::vector<std::shared_ptr<kernels::Mark>> marks;  // as the part's `awaited`; empty: none
    std::shared_ptr<Job> job;                           // while it is in its lane
  };

  std::shared_ptr<Job> MakeJob(int part);
  // Submits what is ready, in order; one thread at a time.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(int part) ABSL_LOCKS_EXCLUDED(mutex_);
  void Launched(int part) ABSL_LOCKS_EXCLUDED(mutex_);
  void Ended(int part, JobResult result) ABSL_LOCKS_EXCLUDED(mutex_);
  void Let(absl::Span<const int> parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first failure is the run's. What is queued is taken back, what was not submitted is not.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Merge(const Part& part, const JobResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // true once, when all is answered
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const SplitProgram> program_;
  const std::shared_ptr<Job> whole_;
  absl::Mutex mutex_;
  std::vector<State> parts_ ABSL_GUARDED_BY(mutex_);
  std::deque<int> ready_ ABSL_GUARDED_BY(mutex_);
  bool advancing_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;  // some part was launched
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  int in_lanes_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted and not yet answered
  int unsubmitted_ ABSL_GUARDED_BY(mutex_) = 0;
  JobResult result_ ABSL_GUARDED_BY(mutex_);
  absl::Time ended_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace gemmd::server
