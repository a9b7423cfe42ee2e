#include "server/engine/scheduling/lane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// How long a submitter pumps for others before the lane's thread takes over.
constexpr absl::Duration kBorrowedTime = absl::Microseconds(200);
// Programs launched from which on those behind them can bear the wake of the lane's thread.
constexpr size_t kBacklog = 4;
// Programs that a caller leaves to the stream's thread once it kept others from launching theirs:
// while it waits the device has nothing behind its program.
constexpr uint8_t kCrowded = 16;
// How long the lane's thread stays awake for the next program: about what waking it costs.
constexpr absl::Duration kLinger = absl::Microseconds(50);
// A thread's sleep is late by about as much.
constexpr absl::Duration kShortestNap = absl::Microseconds(100);

absl::Status Retold(const absl::Status& status, std::string_view message) {
  return WithReason(absl::Status(status.code(), Text(message)), ReasonOf(status));
}

absl::Status NothingRan(const absl::Status& why) {
  return Retold(why, absl::StrCat(why.message(), " before this program started; nothing ran"));
}

// The answer of a job whose run was stopped.
absl::Status WhyStopped(const Job& job, const kernels::LaunchResult& launch) {
  const std::string ran =
      absl::StrCat("the program was stopped after ",
                   absl::FormatDuration(
                       absl::Trunc(absl::Seconds(launch.device_seconds), absl::Microseconds(1))),
                   " on the device, in or after op ", launch.op_seconds.size(), " of ",
                   job.program->steps().size(), "; what it had written by then stays written; ");
  switch (launch.stopped) {
    case kernels::StopCause::kLimit:
      return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                            ran, "limit ", absl::FormatDuration(job.stop.limit()),
                            " a program (max_program_ms), by the clock; send it in parts")),
                        reason::kProgramLimit);
    case kernels::StopCause::kDeadline:
      return WithReason(absl::DeadlineExceededError(absl::StrCat(
                            ran, "its deadline had passed; allow more time or send less")),
                        reason::kDeadline);
    default:
      return Retold(job.stop_why, absl::StrCat(ran, job.stop_why.message()));
  }
}

}  // namespace

Lane::Lane(kernels::Backend& backend, const SchedulerConfig& config, const Clock& clock,
           Metrics& metrics, Timeline& timeline, LaneKind kind)
    : clock_(clock),
      track_(absl::StrCat(backend.info().name, kind == LaneKind::kPrograms ? "" : " transfers")),
      metrics_(metrics, backend.info().name, kind),
      timeline_(timeline),
      lookahead_(config.lookahead),
      queue_(config.aging),
      stream_(backend.CreateStream({.inline_below = config.inline_below})),
      one_launcher_(stream_->prefers_one_launcher()),
      thread_([this] { Run(); }) {}

void Lane::Stop() {
  std::vector<std::shared_ptr<Job>> left;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    called_.store(true, std::memory_order_relaxed);
    // Nothing new is launched from here on; a submitter that is pumping finds the queue empty.
    left = TakeQueued();
  }
  const absl::Status status = WithReason(
      absl::UnavailableError("the server is stopping; go to another"), reason::kDraining);
  for (auto& job : left) AnswerUnlaunched(*job, status);
  thread_.join();
  stream_.reset();
}

absl::Status Lane::CheckDeadline(const Job& job, absl::Time now) const {
  if (job.deadline == absl::InfiniteFuture()) return absl::OkStatus();
  const double left = absl::ToDoubleSeconds(job.deadline - now);
  const double wait = launched_.SecondsLeft(now) + queue_.WaitSeconds(*job.tenant);
  if (wait + job.estimate <= left) return absl::OkStatus();
  return WithReason(
      absl::DeadlineExceededError(absl::StrCat(
          "needs about ", absl::FormatDuration(absl::Seconds(job.estimate)), " after a wait of ",
          absl::FormatDuration(absl::Seconds(wait)), ", the deadline is in ",
          absl::FormatDuration(absl::Seconds(std::max(left, 0.0))),
          "; nothing ran; allow more time or send less")),
      reason::kDeadline);
}

absl::Status Lane::Accept(const std::shared_ptr<Job>& job, absl::Time now) {
  if (stopping_) {
    return WithReason(absl::UnavailableError("the server is stopping; go to another"),
                      reason::kDraining);
  }
  job->estimate = feedback_.Corrected(job->program->estimated_seconds());
  GEMMD_RETURN_IF_ERROR(CheckDeadline(*job, now));
  metrics_.Accepted();
  queue_.Push(job);
  return absl::OkStatus();
}

absl::Status Lane::Submit(std::shared_ptr<Job> job, absl::Time now) {
  job->accepted = now;
  mutex_.Lock();
  absl::Status refused = Accept(job, now);
  if (refused.ok() && pumping_) crowded_ = kCrowded;
  if (!refused.ok() || LeaveToLauncher(job.get()) || !MayPump(/*on_lane_thread=*/false)) {
    mutex_.Unlock();
    return refused;
  }
  // In one critical section with the push: an idle lane takes the job out again at once.
  PumpLocked(/*on_lane_thread=*/false, now, job.get());
  return absl::OkStatus();
}

std::shared_ptr<Job> Lane::TakeNext(
    absl::Time now, std::vector<std::pair<std::shared_ptr<Job>, absl::Status>>& dropped) {
  while (!queue_.empty()) {
    // One program is always let through, however long; a second only while the first leaves room.
    if (!launched_.empty() && absl::Seconds(launched_.SecondsLeft(now)) >= lookahead_) {
      return nullptr;
    }
    std::shared_ptr<Job> job = queue_.Pop(now);
    absl::Status drop;
    if (job->deadline <= now) {
      drop = WithReason(absl::DeadlineExceededError(absl::StrCat(
                            "the deadline passed while queued for ",
                            absl::FormatDuration(now - job->accepted), "; nothing ran")),
                        reason::kDeadline);
    } else if (job->chain != nullptr) {
      drop = job->chain->Check(job->chain_position);
    }
    for (const kernels::Backend* peer : job->peers) drop.Update(peer->health());
    if (drop.ok()) {
      job->state = Job::State::kLaunched;
      launched_.Launched(job->estimate, now);
      launched_jobs_.push_back(job.get());
      return job;
    }
    job->state = Job::State::kAnswered;
    if (job->chain != nullptr) job->chain->Fail(job->chain_position);
    queue_.Correct(*job->tenant, job->session_key, -job->estimate);
    dropped.emplace_back(std::move(job), std::move(drop));
  }
  return nullptr;
}

void Lane::Pump(bool on_lane_thread, absl::Time now) {
  mutex_.Lock();
  if (!MayPump(on_lane_thread)) {
    mutex_.Unlock();
    return;
  }
  PumpLocked(on_lane_thread, now, nullptr);
}

void Lane::PumpLocked(bool on_lane_thread, absl::Time now, const Job* own) {
  const absl::Time weary = on_lane_thread ? absl::InfiniteFuture() : now + kBorrowedTime;
  std::vector<std::pair<std::shared_ptr<Job>, absl::Status>> dropped;
  pumping_ = true;
  while (true) {
    std::shared_ptr<Job> job = TakeNext(now, dropped);
    if (job == nullptr && dropped.empty()) break;
    // Not while others wait to be launched: the device would idle.
    bool wait = job != nullptr && job.get() == own && own->caller_waits && queue_.empty();
    if (wait && crowded_ > 0) {
      --crowded_;
      wait = false;
    }
    mutex_.Unlock();
    for (auto& [late, status] : dropped) AnswerUnlaunched(*late, std::move(status));
    dropped.clear();
    now = job != nullptr ? Launch(std::move(job), wait, now) : clock_.Now();
    mutex_.Lock();
    if (now > weary && !queue_.empty()) {
      handed_over_ = true;
      called_.store(true, std::memory_order_relaxed);
      break;
    }
  }
  // In one critical section with the last look at the queue: who submits after it pumps for itself.
  if (on_lane_thread) handed_over_ = false;
  if (!handed_over_) called_.store(stopping_, std::memory_order_relaxed);
  pumping_ = false;
  next_look_ = NextLook(now);
  UpdateGauges();
  mutex_.Unlock();
}

void Lane::Answer(Job& job, JobResult result) {
  Job::Done done = std::move(job.done);
  job.buffers.reset();
  job.charge.Release();
  job.time_charge.Release();
  job.inline_charge.Release();
  std::move(done)(std::move(result));
  job.use = SessionUse();
  metrics_.Answered();
}

void Lane::AnswerUnlaunched(Job& job, absl::Status status) {
  const absl::Duration waited = clock_.Now() - job.accepted;
  if (timeline_.on()) {
    timeline_.Add({.kind = TimelineEvent::Kind::kQueue,
                   .begin = job.accepted,
                   .duration = waited,
                   .device = track_,
                   .tenant = job.tenant->name(),
                   .program = timeline_.NextProgram()});
  }
  Answer(job, {.status = std::move(status), .queue_seconds = absl::ToDoubleSeconds(waited)});
}

absl::Time Lane::Launch(std::shared_ptr<Job> job, bool wait, absl::Time begin) {
  Job& launched = *job;
  launched.lane = this;
  if (timeline_.on()) launched.traced_as = timeline_.NextProgram();
  // The job may be gone when Launch returns.
  const uint64_t traced_as = launched.traced_as;
  const Tenant& tenant = *launched.tenant;
  absl::AnyInvocable<void()&&> tell = std::move(launched.launched);
  // The stream's clock is the system's, whatever the lane's is.
  const absl::Duration left = launched.deadline - begin;
  launched.stop.Arm(left < absl::InfiniteDuration() ? absl::Now() + left : absl::InfiniteFuture(),
                    tenant.limits().max_program_time);
  launched.bindings.stop = &launched.stop;
  const auto launch = wait ? &kernels::Stream::LaunchAndWait : &kernels::Stream::Launch;
  (stream_.get()->*launch)(launched.program, std::move(launched.bindings),
                           // No more than an AnyInvocable holds without allocating.
                           [job = std::move(job)](kernels::LaunchResult result) {
                             job->lane->Complete(job, std::move(result));
                           });
  const absl::Time end = clock_.Now();
  if (tell) std::move(tell)();
  const absl::Duration took = end - begin;
  metrics_.Launched(absl::ToDoubleSeconds(took));
  if (traced_as == 0) return end;
  timeline_.Add({.kind = TimelineEvent::Kind::kLaunch,
                 .begin = begin,
                 .duration = took,
                 .device = track_,
                 .tenant = tenant.name(),
                 .program = traced_as});
  return end;
}

void Lane::AddToTimeline(const Job& job, const JobResult& result) {
  const kernels::LaunchResult& launch = result.launch;
  TimelineEvent event = {
      .kind = TimelineEvent::Kind::kQueue,
      .begin = job.accepted,
      .duration = absl::Seconds(result.queue_seconds),
      .device = track_,
      .tenant = job.tenant->name(),
      .program = job.traced_as != 0 ? job.traced_as : timeline_.NextProgram(),
  };
  timeline_.Add(event);
  const absl::Time end = launch.started + absl::Seconds(launch.device_seconds);
  event.kind = TimelineEvent::Kind::kDevice;
  event.begin = launch.started;
  event.duration = end - launch.started;
  timeline_.Add(event);
  event.kind = TimelineEvent::Kind::kOp;
  event.estimated = !launch.ops_timed;
  const auto steps = job.program->steps();
  double seconds = 0;  // from the start to the end of this op
  for (size_t i = 0; i < std::min(steps.size(), launch.op_seconds.size()); ++i) {
    seconds += launch.op_seconds[i];
    // Ops lie within their program, however their times were rounded.
    const absl::Time op_end = std::min(end, launch.started + absl::Seconds(seconds));
    event.duration = op_end - event.begin;
    event.name = steps[i].choice.kernel;
    timeline_.Add(event);
    event.begin = op_end;
  }
}

void Lane::Complete(const std::shared_ptr<Job>& job, kernels::LaunchResult launch) {
  JobResult result{.status = launch.status, .launch = std::move(launch), .queue_seconds = 0};
  result.queue_seconds =
      std::max(0.0, absl::ToDoubleSeconds(result.launch.started - job->accepted));
  if (!result.status.ok() && job->chain != nullptr) job->chain->Fail(job->chain_position);
  bool left = false;
  const absl::Time now = clock_.Now();
  {
    absl::MutexLock lock(&mutex_);
    if (result.launch.stopped != kernels::StopCause::kNone) {
      result.status = WhyStopped(*job, result.launch);
    }
    launched_.Ended(now);
    launched_jobs_.erase(std::find(launched_jobs_.begin(), launched_jobs_.end(), job.get()));
    result.more_of_chain = result.launch.more && job->chain != nullptr && !launched_jobs_.empty() &&
                           launched_jobs_.front()->chain == job->chain;
    busy_seconds_ += result.launch.device_seconds;
    ++completed_;
    if (result.status.ok()) {
      feedback_.Observe(job->program->estimated_seconds(), result.launch.device_seconds);
    }
    queue_.Correct(*job->tenant, job->session_key, result.launch.device_seconds - job->estimate);
    job->state = Job::State::kAnswered;
    left = LeaveToLauncher(nullptr);
  }
  metrics_.Completed(*job, result);
  if (result.status.ok()) served_.Add(job->program->tunable());
  // The device may go on before the answer is written.
  if (!left) Pump(/*on_lane_thread=*/false, clock_.Now());
  if (timeline_.on()) AddToTimeline(*job, result);
  Answer(*job, std::move(result));
}

void Lane::Cancel(const std::shared_ptr<Job>& job, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (job->state != Job::State::kQueued || !queue_.Remove(*job)) return;
    job->state = Job::State::kAnswered;
    UpdateGauges();
  }
  if (job->chain != nullptr) job->chain->Fail(job->chain_position);
  AnswerUnlaunched(*job, status);
}

void Lane::CancelSession(uint64_t session_key, const absl::Status& why) {
  std::vector<std::shared_ptr<Job>> removed;
  {
    absl::MutexLock lock(&mutex_);
    removed = queue_.RemoveSession(session_key);
    for (auto& job : removed) job->state = Job::State::kAnswered;
    StopLaunched(session_key, why);
    UpdateGauges();
  }
  for (auto& job : removed) AnswerUnlaunched(*job, NothingRan(why));
}

void Lane::CancelAll(const absl::Status& why) {
  std::vector<std::shared_ptr<Job>> removed;
  {
    absl::MutexLock lock(&mutex_);
    removed = TakeQueued();
    StopLaunched(std::nullopt, why);
    UpdateGauges();
  }
  for (auto& job : removed) AnswerUnlaunched(*job, NothingRan(why));
}

std::vector<std::shared_ptr<Job>> Lane::TakeQueued() {
  std::vector<std::shared_ptr<Job>> taken;
  while (std::shared_ptr<Job> job = queue_.Pop(clock_.Now())) {
    job->state = Job::State::kAnswered;
    queue_.Correct(*job->tenant, job->session_key, -job->estimate);
    taken.push_back(std::move(job));
  }
  return taken;
}

void Lane::StopLaunched(std::optional<uint64_t> session_key, const absl::Status& why) {
  for (Job* job : launched_jobs_) {
    if (session_key.has_value() && job->session_key != *session_key) continue;
    job->stop_why.Update(why);
    job->stop.Ask();
  }
}

bool Lane::LeaveToLauncher(const Job* own) {
  if (!one_launcher_ || queue_.empty()) return false;
  if (launched_.empty() && own != nullptr && own->caller_waits) return false;
  // Who polls for rings is awake and has nothing else to do. The lane's thread may wake half a
  // millisecond late, and runs that have ended but are not answered yet look like a backlog.
  if (own != nullptr && own->armed) return false;
  const bool asked = own != nullptr && own->left;
  if (!asked && !lingering_ && launched_.size() < kBacklog) return false;
  handed_over_ = true;
  called_.store(true, std::memory_order_relaxed);
  return true;
}

absl::Time Lane::NextLook(absl::Time now) const {
  if (queue_.empty() || launched_.empty()) return absl::InfiniteFuture();
  const absl::Duration room = absl::Seconds(launched_.SecondsLeft(now)) - lookahead_;
  const absl::Time look = now + std::max(room, kShortestNap);
  // Whoever sees a program's end pumps anyway.
  return look < launched_.EndOfFirst() ? look : absl::InfiniteFuture();
}

bool Lane::Await() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    const absl::Time now = clock_.Now();
    if (stopping_) return false;
    if (handed_over_ || next_look_ <= now) break;
    const absl::Time planned = next_look_;
    const auto called = [this, planned]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || handed_over_ || next_look_ < planned;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&called), planned - now);
  }
  next_look_ = absl::InfiniteFuture();  // whoever pumps decides anew
  lingering_ = true;
  return true;
}

void Lane::Run() {
  while (Await()) {
    Pump(/*on_lane_thread=*/true, clock_.Now());
    Linger();
  }
}

void Lane::Linger() {
  if (one_launcher_) {
    const absl::Time end = absl::Now() + kLinger;
    while (!called_.load(std::memory_order_relaxed) && absl::Now() < end) std::this_thread::yield();
  }
  absl::MutexLock lock(&mutex_);
  lingering_ = handed_over_;
}

void Lane::UpdateGauges() {
  metrics_.SetQueue(
      {queue_.size(Priority::kHigh), queue_.size(Priority::kNormal), queue_.size(Priority::kLow)},
      queue_.queued_seconds() + launched_.estimated_seconds());
}

void Lane::Reconfigure(const SchedulerConfig& config) {
  absl::MutexLock lock(&mutex_);
  lookahead_ = config.lookahead;
  queue_.set_aging(config.aging);
}

LaneStats Lane::stats() const {
  absl::MutexLock lock(&mutex_);
  return {.queued = queue_.size(),
          .launched = static_cast<int64_t>(launched_.size()),
          .queued_seconds = queue_.queued_seconds() + launched_.estimated_seconds(),
          .busy_seconds = busy_seconds_,
          .completed = completed_};
}

}  // namespace gemmd::server
