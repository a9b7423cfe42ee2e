// From a ring to a job, and from a job's end to the words that the client waits for.

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "server/engine/armed/armed_region.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/memory_fence.h"
#include "server/engine/scheduling/span_parts.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr int kWordsPerLine = GEMMD_ARMED_WORDS_PER_LINE;
// Rings after which a look at one region ends: others wait meanwhile, whoever this one's owner is.
constexpr int kMostTaken = 16;

// Takes back what UseForRing counted.
absl::Status NotAccepted(Job& job, absl::Status status) {
  job.use->ProgramAnswered(0);
  return status;
}

}  // namespace

bool ArmedRegion::Poll() {
  const size_t lines = lines_.load(std::memory_order_acquire);
  int taken = 0;
  for (size_t i = 0; i < lines && taken < kMostTaken; ++i) {
    const size_t line = first_line_;
    first_line_ = line + 1 < lines ? line + 1 : 0;
    if (!memory_->AnyRung(line)) continue;
    for (uint32_t left = watch_[line].load(std::memory_order_acquire); left != 0;
         left &= left - 1) {
      const int slot = static_cast<int>(line) * kWordsPerLine + std::countr_zero(left);
      if (!memory_->Rung(slot)) continue;
      ++taken;
      Take(slot);
    }
  }
  return taken > 0;
}

bool ArmedRegion::HasRings() const {
  const size_t lines = lines_.load(std::memory_order_acquire);
  for (size_t line = 0; line < lines; ++line) {
    if (!memory_->AnyRung(line)) continue;
    for (uint32_t left = watch_[line].load(std::memory_order_acquire); left != 0;
         left &= left - 1) {
      if (memory_->Rung(static_cast<int>(line) * kWordsPerLine + std::countr_zero(left)))
        return true;
    }
  }
  return false;
}

absl::Status ArmedRegion::CheckRing(int slot, const Slot& state, uint32_t gate) const {
  if (gate != GEMMD_ARMED_RUNG) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gate of slot ", slot, " held ", gate, "; 1 rings, and nothing else"));
  }
  if (!state.refusal.ok()) return state.refusal;
  if (state.program != nullptr) return absl::OkStatus();
  return WithReason(
      absl::NotFoundError(absl::StrCat("slot ", slot, " is not armed; arm a plan in it first")),
      reason::kNotArmed);
}

void ArmedRegion::Take(int slot) {
  Run run{.slot = slot, .taken = environment_.clock.Now()};
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    Slot& state = slots_[slot];
    const uint32_t gate = memory_->TakeGate(slot);
    if (gate == GEMMD_ARMED_IDLE) return;  // taken back, by a client or by arming
    if (++state.unanswered == kMostUnanswered) Watch(slot, false);
    status = CheckRing(slot, state, gate);
    if (status.ok()) run.program = state.program;
  }
  if (status.ok()) status = Submit(run);
  if (status.ok()) return;
  environment_.count_rejection(tenant_, status);
  run.refused = true;
  Ended(std::move(run), {.status = std::move(status)});
}

absl::StatusOr<std::shared_ptr<ArmedRegion::RunJob>> ArmedRegion::MakeJob(const Run& run) {
  GEMMD_RETURN_IF_ERROR(environment_.check_open());
  const Program& program = *run.program;
  if (!program.buffers->StillWritable()) {
    return WithReason(absl::FailedPreconditionError(
                          "a buffer that this slot's plan writes was published and is read-only "
                          "now; disarm the slot and arm the plan with another"),
                      reason::kReadOnly);
  }
  const std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) return absl::NotFoundError("the session has ended");
  GEMMD_ASSIGN_OR_RETURN(auto use, session->UseForRing(run.taken));
  // Shared by the lane and by whoever disarms the slot.
  auto job = std::allocate_shared<RunJob>(JobAllocator<RunJob>(blocks_), shared_from_this(), run);
  job->use = std::move(use);
  auto charge = tenant_.TakeProgram();
  if (!charge.ok()) return NotAccepted(*job, charge.status());
  job->charge = *std::move(charge);
  job->program = program.plan->program.Get();
  auto time_charge = tenant_.TakeDeviceTime(absl::Seconds(job->program->estimated_seconds()));
  if (!time_charge.ok()) return NotAccepted(*job, time_charge.status());
  job->time_charge = *std::move(time_charge);
  job->bindings.slots = program.buffers->addresses;
  for (const std::string& data : program.plan->inputs) {
    job->bindings.inputs.push_back(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()), data.size()));
  }
  job->bindings.signal = program.done_word;
  job->bindings.stream_waits = program.options.rung_by_stream;
  job->buffers = program.buffers;
  job->peers = program.peers;
  job->tenant = &tenant_;
  job->session_key = session_key_;
  job->priority = program.options.priority;
  job->deadline = run.taken + program.options.deadline;
  job->armed = true;
  // The lane keeps the job until this has returned.
  job->done = [job = job.get()](JobResult result) {
    job->region->Answered(*job, std::move(result));
  };
  return job;
}

absl::Status ArmedRegion::Submit(const Run& run) {
  GEMMD_ASSIGN_OR_RETURN(auto job, MakeJob(run));
  {
    absl::MutexLock lock(&mutex_);
    slots_[run.slot].jobs.push_back(job);
  }
  absl::Status refused = run.program->plan->device->lane().Submit(job, run.taken);
  if (refused.ok()) return refused;
  {
    absl::MutexLock lock(&mutex_);
    Forget(run.slot, job.get());
  }
  return NotAccepted(*job, std::move(refused));
}

// The lane lets go of the session behind this. With the run goes the slot's hold on the buffers,
// which are to be free when the session is.
void ArmedRegion::Answered(RunJob& job, JobResult result) {
  job.use->ProgramAnswered(result.launch.device_seconds);
  Run run = std::move(job.run);
  if (result.status.ok()) return Finish(std::move(run), std::move(result), &job);
  {
    absl::MutexLock lock(&mutex_);
    Forget(run.slot, &job);
  }
  Ended(std::move(run), std::move(result));
}

void ArmedRegion::Forget(int slot, const Job* job) {
  std::erase_if(slots_[slot].jobs, [&](const auto& one) { return one.get() == job; });
}

void ArmedRegion::Ended(Run run, JobResult result) {
  if (!result.status.ok() && SubmitPoison(run, result)) return;
  Finish(std::move(run), std::move(result));
}

// Puts NaN where the results would be, and finishes the run with its own status behind it. False
// when that cannot be done.
bool ArmedRegion::SubmitPoison(const Run& run, JobResult& result) {
  if (run.program == nullptr || run.program->poison == nullptr) return false;
  const Program& program = *run.program;
  Device& device = *program.plan->device;
  if (!device.backend().health().ok() || !program.buffers->StillWritable()) return false;
  const std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) return false;
  auto use = session->Use(absl::InfinitePast());
  if (!use.ok()) return false;  // what it would fill goes with the session
  auto job = std::make_shared<Job>();
  job->program = program.poison;
  job->bindings.slots = program.buffers->addresses;
  job->buffers = program.buffers;
  job->use = *std::move(use);
  job->tenant = &tenant_;
  job->session_key = session_key_;
  job->priority = program.options.priority;
  job->armed = true;
  Run filled = run;
  filled.refused = false;  // it takes its turn in the lane now
  // Shared with the job, which may be refused and then never answers.
  auto kept = std::make_shared<JobResult>(std::move(result));
  job->done = [region = shared_from_this(), filled = std::move(filled), kept](JobResult) mutable {
    region->Finish(std::move(filled), std::move(*kept));
  };
  if (device.lane().Submit(std::move(job)).ok()) return true;
  result = std::move(*kept);
  return false;
}

void ArmedRegion::Finish(Run run, JobResult result, const Job* job) {
  const int slot = run.slot;
  const bool by_stream = run.program != nullptr && run.program->options.rung_by_stream;
  bool waits = false;  // a ring for the slot, which was not looked at meanwhile
  {
    absl::MutexLock lock(&mutex_);
    Slot& state = slots_[slot];
    if (job != nullptr) Forget(slot, job);
    EndedRun ended{std::move(run), std::move(result)};
    if (ended.run.refused && state.unanswered > 1) {
      state.deferred = std::move(ended);  // answered behind the runs before it
      Watch(slot, false);
      return;
    }
    Answer(ended);
    if (state.deferred.has_value() && state.unanswered == 1) {
      Answer(*std::exchange(state.deferred, std::nullopt));
    }
    if (!ended_ && !state.deferred.has_value()) {
      Watch(slot, true);
      // With the poller's fence before its last look and sleep: one of us sees this ring.
      MemoryFence();
      waits = memory_->Rung(slot);
    }
  }
  ends_.fetch_add(1, std::memory_order_relaxed);
  memory_->WakeWaiters(slot);
  if (waits || by_stream) environment_.waker.WakeIfAsleep();
}

// Report, then done: whoever sees done = FAILED, or done without a stream, finds the report there.
void ArmedRegion::Answer(const EndedRun& ended) {
  const int slot = ended.run.slot;
  const JobResult& result = ended.result;
  Slot& state = slots_[slot];
  --state.unanswered;
  const bool ok = result.status.ok();
  (ok ? environment_.metrics.ran : environment_.metrics.failed).Increment();
  uint64_t number = 0;
  if (state.info.has_value()) {
    number = static_cast<uint64_t>(++state.info->runs);
    if (!ok) ++state.info->failed_runs;
    state.info->last = result.status;
  }
  memory_->WriteReport(slot, {.run = number,
                              .device_time = absl::Seconds(result.launch.device_seconds),
                              .queued = absl::Seconds(result.queue_seconds),
                              .taken = ended.run.taken,
                              .status = result.status});
  if (!ok) {
    memory_->SetDone(slot, GEMMD_ARMED_FAILED);
  } else if (!result.launch.signalled) {
    memory_->SetDone(slot, GEMMD_ARMED_RAN);
  }
  if (environment_.spans.Samples(std::nullopt)) OfferSpan(ended);
}

// A ring brings no trace of its caller's: each is a trace of its own.
void ArmedRegion::OfferSpan(const EndedRun& ended) const {
  const Run& run = ended.run;
  CallSpan span = {.kind = CallSpan::Kind::kArmedRun,
                   .trace_id = NewTraceId(),
                   .span_id = NewSpanId(),
                   .tenant = tenant_.name(),
                   .number = run.slot,
                   .begin = run.taken,
                   .duration = environment_.clock.Now() - run.taken};
  span.SetStatus(ended.result.status);
  if (run.program != nullptr) {
    const Plan& plan = *run.program->plan;
    span.parts = PartsOf(*plan.program.Get(), plan.device->name(), ended.result);
  }
  environment_.spans.Offer(std::move(span));
}

}  // namespace gemmd::server
