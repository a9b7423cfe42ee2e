#include "server/engine/tuning/background_tuning.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/server_state.h"
#include "tests/kernels/tunable_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using kernels::ChoiceReason;
using kernels::TuneShape;

constexpr TuneShape kShape{8, 64, 256};
constexpr TuneShape kUnserved{8, 63, 256};  // FakeTuner has no kernel for it

class BackgroundTuningTest : public ::testing::Test {
 protected:
  BackgroundTuningTest() {
    Config config;
    config.tenants = {{.name = "red"}};
    config.devices = {{.name = "cpu:0"}};
    config.share.disabled = true;
    auto backend = std::make_unique<kernels::TunableBackend>();
    backend_ = backend.get();
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::move(backend));
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "instance");
  }
  ~BackgroundTuningTest() override { background_.reset(); }

  void Begin(std::vector<TuneShape> served) {
    background_ = std::make_unique<BackgroundTuning>(
        tuner(), [served = std::move(served)] { return served; }, 0.5, log_);
  }
  DeviceTuner& tuner() { return **state_->FindTuner(""); }
  ChoiceReason Reason(const TuneShape& shape) const {
    return backend_->tuner()->Current(shape)->reason;
  }
  static bool Await(absl::FunctionRef<bool()> what) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (!what() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
    return what();
  }

  FakeClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"test"};
  kernels::TunableBackend* backend_ = nullptr;
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<BackgroundTuning> background_;
};

TEST_F(BackgroundTuningTest, ServedShapesAreMeasuredWithoutBeingAskedFor) {
  Begin({kShape, {16, 64, 256}});
  EXPECT_TRUE(Await([&] {
    return Reason(kShape) == ChoiceReason::kTuned && Reason({16, 64, 256}) == ChoiceReason::kTuned;
  }));
  EXPECT_EQ(tuner().counts().measured, 2);
}

TEST_F(BackgroundTuningTest, AShapeThatNothingServesKeepsNoOtherOut) {
  Begin({kUnserved, kShape});
  EXPECT_TRUE(Await([&] { return Reason(kShape) == ChoiceReason::kTuned; }));
}

TEST_F(BackgroundTuningTest, WithoutMemoryItIsPassedOverOnce) {
  backend_->full = true;
  Begin({kShape});
  EXPECT_TRUE(Await([&] { return tuner().counts().passed_over == 1; }));
  EXPECT_EQ(Reason(kShape), ChoiceReason::kModel);
}

TEST_F(BackgroundTuningTest, GivesWayToAnAdministratorsOrder) {
  std::vector<TuneShape> served;
  for (int64_t n = 1; n <= 64; ++n) served.push_back({512, 64 * n, 4096});
  Begin(std::move(served));
  ASSERT_TRUE(Await([&] { return tuner().counts().measured > 0; }));
  absl::Notification ended;
  absl::Status status;
  const auto order = tuner().Start({.shapes = {kShape},
                                    .measured = [](const auto&) {},
                                    .ended =
                                        [&](absl::Status why) {
                                          status = std::move(why);
                                          ended.Notify();
                                        }});
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Reason(kShape), ChoiceReason::kTuned);
}

TEST_F(BackgroundTuningTest, EndsInTheMiddleOfAMeasurement) {
  Begin({{4096, 4096, 4096}});
  background_.reset();
  EXPECT_EQ(tuner().counts().measured, 0);
}

}  // namespace
}  // namespace gemmd::server
