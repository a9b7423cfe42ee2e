#include "server/engine/scheduling/split_run.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/lane.h"

namespace gemmd::server {
namespace {

// Ops from which on a run's lanes launch for themselves, at the same time. Fewer are launched by
// turns, by who submits them: each takes some 5 us, and a lane's thread 50 to wake.
constexpr size_t kManyOps = 16;

// What a part's lane says, with its place in the whole.
absl::Status OfPart(const absl::Status& status, size_t part, size_t parts,
                    const std::string& device) {
  return WithReason(absl::Status(status.code(), absl::StrCat("part ", part, " of ", parts, ", on ",
                                                             device, ": ", status.message())),
                    ReasonOf(status));
}

}  // namespace

SplitRun::SplitRun(std::shared_ptr<const SplitProgram> program, std::shared_ptr<Job> whole)
    : program_(std::move(program)), whole_(std::move(whole)) {
  const std::vector<Part>& parts = program_->parts();
  absl::MutexLock lock(&mutex_);
  parts_.resize(parts.size());
  unsubmitted_ = static_cast<int>(parts.size());
  result_.launch.op_seconds.resize(program_->steps().size());
  result_.launch.ops_timed = true;
  absl::flat_hash_map<const Lane*, int> last;
  for (int i = 0; i < static_cast<int>(parts.size()); ++i) {
    State& state = parts_[i];
    for (const OpRun::Before& before : parts[i].after) parts_[before.part].followers.push_back(i);
    state.waits = static_cast<int>(parts[i].after.size());
    const auto [before, first] = last.try_emplace(parts[i].lane, i);
    if (!first) {
      parts_[std::exchange(before->second, i)].next_in_lane = i;
      ++state.waits;
    }
    if (state.waits == 0) ready_.push_back(i);
  }
}

std::shared_ptr<Job> SplitRun::MakeJob(int index) {
  const Part& part = program_->parts()[index];
  auto job = std::make_shared<Job>();
  job->program = part.program;
  job->bindings.slots = whole_->bindings.slots;
  job->bindings.inputs = whole_->bindings.inputs;
  job->bindings.outputs = whole_->bindings.outputs;
  job->buffers = whole_->buffers;
  job->peers = part.peers;
  job->tenant = whole_->tenant;
  job->session_key = whole_->session_key;
  job->priority = whole_->priority;
  job->deadline = whole_->deadline;
  job->chain = whole_->chain;
  job->chain_position = whole_->chain_position;
  job->left = program_->steps().size() >= kManyOps;
  job->launched = [self = shared_from_this(), index] { self->Launched(index); };
  job->done = [self = shared_from_this(), index](JobResult result) {
    self->Ended(index, std::move(result));
  };
  return job;
}

void SplitRun::Advance() {
  {
    absl::MutexLock lock(&mutex_);
    if (advancing_) return;  // that thread looks again
    advancing_ = true;
  }
  for (;;) {
    int part = -1;
    bool ended = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!result_.status.ok()) {
        unsubmitted_ = 0;
        ready_.clear();
      }
      if (ready_.empty()) {
        advancing_ = false;
        ended = TakeEnd();
      } else {
        part = ready_.front();
        ready_.pop_front();
        --unsubmitted_;
        ++in_lanes_;
      }
    }
    if (ended) Finish();
    if (part < 0) return;
    Submit(part);
  }
}

void SplitRun::Submit(int index) {
  const Part& part = program_->parts()[index];
  std::shared_ptr<Job> job = MakeJob(index);
  absl::Status refused;
  std::vector<std::shared_ptr<kernels::Mark>> marks;
  for (const int op : part.awaited) {
    if (!part.device->backend().makes_marks()) break;
    absl::StatusOr<std::shared_ptr<kernels::Mark>> mark = part.device->backend().MakeMark();
    refused = mark.status();
    if (!refused.ok()) break;
    marks.push_back(*mark);
    job->bindings.marks.push_back({.op = op, .mark = *std::move(mark)});
  }
  {
    absl::MutexLock lock(&mutex_);
    parts_[index].marks = std::move(marks);
    parts_[index].job = job;
    for (const OpRun::Before& before : part.after) {
      const auto& set = parts_[before.part].marks;
      if (!set.empty()) job->bindings.after.push_back(set[before.awaited]);
    }
  }
  if (refused.ok()) refused = part.lane->Submit(job);
  if (!refused.ok()) {
    if (whole_->chain != nullptr) whole_->chain->Fail(whole_->chain_position);
    job->launched = nullptr;
    job->done = nullptr;
    return Ended(index, {.status = std::move(refused)});
  }
  absl::MutexLock lock(&mutex_);
  const int next = parts_[index].next_in_lane;
  if (next >= 0) Let({&next, 1});
}

void SplitRun::Let(absl::Span<const int> parts) {
  for (const int part : parts) {
    if (--parts_[part].waits == 0) ready_.push_back(part);
  }
}

void SplitRun::Launched(int index) {
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;  // on another thread, before this one came to tell
    started_ = true;
    // Its marks are in its stream: what waits for it may go to theirs.
    if (!parts_[index].marks.empty()) Let(std::exchange(parts_[index].followers, {}));
  }
  Advance();
}

void SplitRun::Ended(int index, JobResult result) {
  const Part& part = program_->parts()[index];
  const absl::Status failure =
      result.status.ok()
          ? result.status
          : OfPart(result.status, index, program_->parts().size(), part.device->name());
  {
    absl::MutexLock lock(&mutex_);
    Merge(part, result);
    parts_[index].job.reset();
    // With a mark they went when it was launched, which may be told of later than the end.
    if (failure.ok() && parts_[index].marks.empty()) {
      Let(std::exchange(parts_[index].followers, {}));
    }
  }
  if (!failure.ok()) Fail(failure);
  bool ended = false;
  {
    absl::MutexLock lock(&mutex_);
    --in_lanes_;
    ended = !advancing_ && TakeEnd();
  }
  if (ended) return Finish();
  Advance();
}

void SplitRun::Merge(const Part& part, const JobResult& result) {
  const kernels::LaunchResult& launch = result.launch;
  result_.parts_seconds += launch.device_seconds;
  if (!result.status.ok()) return;
  kernels::LaunchResult& whole = result_.launch;
  const bool first = ended_ == absl::InfinitePast();
  if (first || launch.started < whole.started) whole.started = launch.started;
  if (first || result.queue_seconds < result_.queue_seconds) {
    result_.queue_seconds = result.queue_seconds;
  }
  ended_ = std::max(ended_, launch.started + absl::Seconds(launch.device_seconds));
  whole.device_seconds = absl::ToDoubleSeconds(ended_ - whole.started);
  whole.ops_timed &= launch.ops_timed;
  if (launch.way == kernels::LaunchWay::kGraph) whole.way = launch.way;
  for (size_t i = 0; i < std::min(part.ops.size(), launch.op_seconds.size()); ++i) {
    whole.op_seconds[part.ops[i]] = launch.op_seconds[i];
  }
}

void SplitRun::Fail(const absl::Status& status) {
  std::vector<std::pair<Lane*, std::shared_ptr<Job>>> queued;
  {
    absl::MutexLock lock(&mutex_);
    if (!result_.status.ok()) return;
    result_.status = status;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].job != nullptr) queued.emplace_back(program_->parts()[i].lane, parts_[i].job);
    }
  }
  for (const auto& [lane, job] : queued) lane->Cancel(job, status);
}

void SplitRun::Cancel(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (started_ || finished_) return;
  }
  Fail(status);
  Advance();
}

bool SplitRun::TakeEnd() {
  if (finished_ || in_lanes_ > 0 || unsubmitted_ > 0) return false;
  finished_ = true;
  return true;
}

void SplitRun::Finish() {
  JobResult result;
  {
    absl::MutexLock lock(&mutex_);
    result = std::move(result_);
    result_.status = absl::OkStatus();
    parts_.clear();
  }
  Job::Done done = std::move(whole_->done);
  whole_->buffers.reset();
  whole_->charge.Release();
  whole_->time_charge.Release();
  whole_->inline_charge.Release();
  std::move(done)(std::move(result));
  whole_->use = SessionUse();
}

}  // namespace gemmd::server
