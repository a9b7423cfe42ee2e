#include "server/engine/tuning/device_tuner.h"

#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/engine/reason.h"
#include "server/engine/tuning/tuning_file.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// What nobody's session is.
constexpr uint64_t kSessionKey = std::numeric_limits<uint64_t>::max();
constexpr absl::Duration kKeepEvery = absl::Seconds(1);
constexpr absl::Duration kPatience = absl::Milliseconds(50);
constexpr absl::Duration kForegroundLookEvery = absl::Microseconds(200);
// In the background: longer, since it is never urgent, but operands lie in the device's memory.
constexpr absl::Duration kBackgroundPatience = absl::Seconds(2);
constexpr absl::Duration kBackgroundLookEvery = absl::Milliseconds(1);
constexpr absl::Duration kCancelWithin = absl::Milliseconds(20);
// One measurement and the look at whether to go on: how long a background order takes to end.
constexpr absl::Duration kGiveWayWithin = absl::Seconds(5);

// Ends the whole order; what else goes wrong concerns one shape.
bool EndsAll(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsUnavailable(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

}  // namespace

TenantConfig DeviceTuner::OwnTenant() {
  // No tenant of a config can be called so; the weight is the least that one can have.
  return {.name = "(tuning)", .weight = 0.01};
}

DeviceTuner::DeviceTuner(Device& device, Tenant& tenant, const Clock& clock, Log& log,
                         std::string file)
    : device_(device), tenant_(tenant), clock_(clock), log_(log), file_(std::move(file)) {
  Load();
  thread_ = std::thread([this] { Run(); });
}

void DeviceTuner::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    ended_.Update(WithReason(absl::UnavailableError("the server is stopping; go to another"),
                             reason::kDraining));
  }
  thread_.join();
}

void DeviceTuner::Load() {
  if (file_.empty()) return;
  auto text = ReadTuningFile(file_);
  if (absl::IsNotFound(text.status())) return;
  auto imported = text.ok() ? tuner().Import(*text) : text.status();
  absl::MutexLock lock(&mutex_);
  if (!imported.ok()) {
    ++counts_.rejected;
    log_.Warning("tuning_file_rejected", {{"device", device_.name()},
                                          {"file", file_},
                                          {"message", std::string(imported.status().message())}});
    absl::MutexLock file_lock(&file_mutex_);
    keep_rejected_ = true;
    return;
  }
  ++(imported->skipped.empty() ? counts_.loaded : counts_.partial);
  if (imported->skipped.empty()) {
    log_.Info("tuning_file_loaded",
              {{"device", device_.name()}, {"file", file_}, {"shapes", imported->shapes}});
  } else {
    log_.Warning("tuning_file_partial", {{"device", device_.name()},
                                         {"file", file_},
                                         {"shapes", imported->shapes},
                                         {"message", imported->skipped}});
  }
}

void DeviceTuner::Save() {
  if (file_.empty()) return;
  absl::Status written;
  {
    absl::MutexLock lock(&file_mutex_);
    if (std::exchange(keep_rejected_, false)) {
      std::rename(file_.c_str(), absl::StrCat(file_, ".rejected").c_str());
    }
    written = WriteTuningFile(file_, Export());
  }
  if (!written.ok()) {
    log_.Warning("tuning_file_unwritten",
                 {{"device", device_.name()}, {"message", std::string(written.message())}});
  }
  absl::MutexLock lock(&mutex_);
  ++(written.ok() ? counts_.written : counts_.unwritten);
}

absl::StatusOr<uint64_t> DeviceTuner::Start(Order order) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return ended_;
  if (order_.has_value() && order_->background && !order.background) {
    ended_.Update(absl::AbortedError("another order came"));
    const auto given_way = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !order_.has_value() || !order_->background;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&given_way), kGiveWayWithin);
    if (stopping_) return ended_;
  }
  if (order_.has_value()) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          device_.name(),
                          " is being tuned already, limit 1 at a time; wait for that or cancel "
                          "it, then try again")),
                      reason::kTuneLimit);
  }
  order_ = std::move(order);
  ended_ = absl::OkStatus();
  return ++number_;
}

void DeviceTuner::Cancel(uint64_t order, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (order_.has_value() && number_ == order) ended_.Update(why);
}

absl::Status DeviceTuner::why_ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

void DeviceTuner::Run() {
  for (;;) {
    const Order* order = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      const auto called = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return order_.has_value() || stopping_;
      };
      mutex_.Await(absl::Condition(&called));
      if (!order_.has_value()) return;
      order = &*order_;  // stays while it is under way
    }
    const absl::Status status = Measure(*order);
    std::function<void(absl::Status)> ended = order->ended;
    {
      absl::MutexLock lock(&mutex_);
      order_.reset();
    }
    ended(status);
  }
}

absl::Status DeviceTuner::Measure(const Order& order) {
  const kernels::TuneOptions options{.kernels = order.kernels,
                                     .most_rounds = order.most_rounds,
                                     .program_seconds = order.program_seconds,
                                     .max_memory_bytes = order.max_memory_bytes};
  pace_ = TuningPace(order.max_share);
  std::vector<kernels::ShapeTimes> pending;
  absl::Status ended;
  absl::Time kept = absl::Now();
  for (const kernels::TuneShape& shape : order.shapes) {
    ended = why_ended();
    if (!ended.ok()) break;
    auto tuned = kernels::TuneOneShape(
        device_.backend(), shape, options,
        [&](std::shared_ptr<const kernels::Program> program, kernels::Bindings bindings) {
          return RunTrial(order, std::move(program), std::move(bindings));
        });
    if (EndsAll(tuned.status())) {
      ended = tuned.status();
      break;
    }
    if (tuned.ok()) pending.push_back({shape, tuned->times});
    {
      absl::MutexLock lock(&mutex_);
      ++(tuned.ok() ? counts_.measured : counts_.passed_over);
      if (tuned.ok()) counts_.device_seconds += tuned->device_seconds;
    }
    if (absl::Now() - kept >= kKeepEvery) {
      ended = KeepAll(pending);
      kept = absl::Now();
    }
    order.measured(tuned.ok() ? Result{absl::OkStatus(), *std::move(tuned)}
                              : Result{tuned.status(), {.shape = shape}});
    if (!ended.ok()) break;
  }
  ended.Update(KeepAll(pending));
  return ended;
}

absl::Status DeviceTuner::KeepAll(std::vector<kernels::ShapeTimes>& measured) {
  if (measured.empty()) return absl::OkStatus();
  absl::Status kept = tuner().Keep(measured);
  measured.clear();
  if (kept.ok()) {
    device_.RenewPrograms();
    Save();
  }
  return kept;
}

void DeviceTuner::Rest(absl::Duration time) const {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !ended_.ok(); };
  mutex_.AwaitWithTimeout(absl::Condition(&ended), time);
}

void DeviceTuner::AwaitShare(const Order& order) {
  if (!order.background) return;
  while (why_ended().ok()) {
    const int64_t others = device_.lane().stats().completed - trials_;
    const absl::Duration wait = pace_.ToWait(absl::Now(), others);
    if (wait <= absl::ZeroDuration()) return;
    Rest(wait);
  }
}

absl::Status DeviceTuner::AwaitIdle(const Order& order) {
  const absl::Time end = absl::Now() + (order.background ? kBackgroundPatience : kPatience);
  do {
    const LaneStats stats = device_.lane().stats();
    if (stats.queued + stats.launched == 0 || !why_ended().ok()) return absl::OkStatus();
    Rest(order.background ? kBackgroundLookEvery : kForegroundLookEvery);
  } while (absl::Now() < end);
  if (!order.background) return absl::OkStatus();
  return absl::DeadlineExceededError("the device is busy all the time");
}

absl::StatusOr<kernels::LaunchResult> DeviceTuner::RunTrial(
    const Order& order, std::shared_ptr<const kernels::Program> program,
    kernels::Bindings bindings) {
  AwaitShare(order);
  GEMMD_RETURN_IF_ERROR(AwaitIdle(order));
  GEMMD_RETURN_IF_ERROR(why_ended());
  JobResult result;
  absl::Notification done;
  auto job = std::make_shared<Job>();  // shared as the lane wants it
  job->program = std::move(program);
  job->bindings = std::move(bindings);
  job->tenant = &tenant_;
  job->session_key = kSessionKey;
  job->priority = Priority::kLow;
  job->done = [&](JobResult answer) {
    result = std::move(answer);
    done.Notify();
  };
  Lane& lane = device_.lane();
  GEMMD_RETURN_IF_ERROR(lane.Submit(job));
  // The operands' memory is the caller's: not before the device has let go of it.
  while (!done.WaitForNotificationWithTimeout(kCancelWithin)) {
    if (absl::Status why = why_ended(); !why.ok()) lane.Cancel(job, why);
  }
  ++trials_;
  pace_.Took(absl::Now(), result.launch.device_seconds);
  if (!result.status.ok()) return result.status;
  return std::move(result.launch);
}

std::string DeviceTuner::Export() const {
  return tuner().Export(absl::FormatTime("%Y-%m-%d", clock_.Now(), absl::UTCTimeZone()));
}

absl::StatusOr<kernels::TuningImport> DeviceTuner::Import(std::string_view text) {
  auto imported = tuner().Import(text);
  if (imported.ok() && imported->shapes > 0) {
    device_.RenewPrograms();
    Save();
  }
  return imported;
}

DeviceTuner::Counts DeviceTuner::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace gemmd::server
