#include "kernels/cpu/stream.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cpu/run_watch.h"
#include "kernels/grouping.h"

namespace gemmd::kernels::cpu {

CpuStream::CpuStream(Workers& workers, const StreamOptions& options)
    : workers_(workers),
      inline_below_seconds_(absl::ToDoubleSeconds(options.inline_below)),
      thread_([this] { ThreadMain(); }) {}

CpuStream::~CpuStream() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void CpuStream::Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) {
  Job job{std::move(program), std::move(bindings), std::move(done)};
  const bool small = job.program->estimated_seconds() < inline_below_seconds_;
  {
    absl::MutexLock lock(&mutex_);
    if (!small || busy_ || !queue_.empty()) {
      queue_.push_back(std::move(job));
      return;
    }
    // While busy_ is set the thread starts nothing, so a launch from within `done` queues behind.
    busy_ = true;
  }
  Run(std::move(job));
  absl::MutexLock lock(&mutex_);
  busy_ = false;
}

void CpuStream::Run(Job job) {
  const auto& program = static_cast<const CpuProgram&>(*job.program);
  LaunchResult result;
  result.status = program.CheckBindings(job.bindings);
  result.started = absl::Now();
  result.ops_timed = true;
  if (result.status.ok()) RunOps(program, job.bindings, result);
  std::move(job.done)(std::move(result));
}

void CpuStream::RunOps(const CpuProgram& program, const Bindings& bindings, LaunchResult& result) {
  using Clock = RunWatch::Clock;
  const size_t ops = program.steps().size();
  const Clock::time_point start = Clock::now();
  Clock::time_point last = start;
  RunWatch watch(bindings.stop, start, result.started);
  FaultSink faults;
  const RunContext context{bindings, workers_, scratch_, &watch, &faults};
  result.op_seconds.reserve(ops);
  for (size_t i = 0; i < ops && !watch.StoppedAt(last); ++i) {
    program.RunStep(i, context);
    const Clock::time_point now = Clock::now();
    result.op_seconds.push_back(std::chrono::duration<float>(now - last).count());
    last = now;
    result.status = ToStatus(faults.fault(), i, program.op(i));
    if (!result.status.ok()) break;
  }
  result.device_seconds = std::chrono::duration<double>(last - start).count();
  result.stopped = watch.cause();
  if (result.stopped == StopCause::kNone) return;
  result.status = absl::CancelledError(
      absl::StrCat("stopped in or after op ", result.op_seconds.size(), " of ", ops));
}

void CpuStream::ThreadMain() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !busy_ && (stop_ || !queue_.empty());
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&ready));
    if (queue_.empty()) return;  // stopped, and everything launched has run
    Job job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    mutex_.Unlock();
    Run(std::move(job));
    mutex_.Lock();
    busy_ = false;
  }
}

}  // namespace gemmd::kernels::cpu
