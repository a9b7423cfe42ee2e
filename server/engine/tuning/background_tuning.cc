#include "server/engine/tuning/background_tuning.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace gemmd::server {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr absl::Duration kStopWithin = absl::Milliseconds(20);
constexpr size_t kShapesAtOnce = 8;
// Fewer and shorter than an administrator's Tune: 64 shapes within a minute, by the default share.
constexpr int kKernels = 6;
constexpr int kMostRounds = 24;
constexpr double kProgramSeconds = 250e-6;
// Taken from what tenants could have; larger weights are left to AdminService.Tune.
constexpr int64_t kMaxMemoryBytes = int64_t{512} << 20;

}  // namespace

BackgroundTuning::BackgroundTuning(DeviceTuner& tuner, Served served, double max_share, Log& log)
    : tuner_(tuner), served_(std::move(served)), max_share_(max_share), log_(log), thread_([this] {
        Run();
      }) {}

BackgroundTuning::~BackgroundTuning() {
  stop_.Notify();
  thread_.join();
}

void BackgroundTuning::Run() {
  while (!stop_.WaitForNotificationWithTimeout(kLookEvery)) {
    for (auto shapes = Next(); !shapes.empty() && !stop_.HasBeenNotified(); shapes = Next()) {
      Measure(std::move(shapes));
    }
  }
}

std::vector<kernels::TuneShape> BackgroundTuning::Next() const {
  std::vector<kernels::TuneShape> shapes;
  for (const kernels::TuneShape& shape : served_()) {
    if (shapes.size() == kShapesAtOnce) break;
    if (tried_.contains(shape)) continue;
    const auto choice = tuner_.tuner().Current(shape);
    if (choice.ok() && choice->reason == kernels::ChoiceReason::kModel) shapes.push_back(shape);
  }
  return shapes;
}

void BackgroundTuning::Measure(std::vector<kernels::TuneShape> shapes) {
  absl::Notification ended;
  int measured = 0;
  DeviceTuner::Order order{.shapes = std::move(shapes),
                           .kernels = kKernels,
                           .most_rounds = kMostRounds,
                           .program_seconds = kProgramSeconds,
                           .max_memory_bytes = kMaxMemoryBytes,
                           .background = true,
                           .max_share = max_share_};
  order.measured = [&](const DeviceTuner::Result& result) {
    if (result.status.ok()) ++measured;
    tried_.insert(result.tuned.shape);
  };
  absl::Status status;
  order.ended = [&](absl::Status why) {
    status = std::move(why);
    ended.Notify();
  };
  const auto number = tuner_.Start(std::move(order));
  if (!number.ok()) {  // somebody else's order is under way, or the daemon ends
    stop_.WaitForNotificationWithTimeout(kLookEvery);
    return;
  }
  while (!ended.WaitForNotificationWithTimeout(kStopWithin)) {
    if (!stop_.HasBeenNotified()) continue;
    tuner_.Cancel(*number, absl::CancelledError("the server is stopping"));
  }
  if (measured > 0) {
    log_.Info("tuned_in_background", {{"device", tuner_.device().name()}, {"shapes", measured}});
  }
  // Given way, or a device that fails: not at once again.
  if (!status.ok()) stop_.WaitForNotificationWithTimeout(kLookEvery);
}

}  // namespace gemmd::server
