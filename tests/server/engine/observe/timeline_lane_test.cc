// What a lane tells the timeline about its programs.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/scheduling/lane.h"
#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = TimelineEvent::Kind;

class TimelineLaneTest : public ::testing::Test {
 protected:
  TimelineLaneTest() : recording_(*timeline_.Begin(clock_.Now())) {}

  std::shared_ptr<Job> Submit(double seconds, size_t steps = 1) {
    auto job = std::make_shared<Job>();
    job->program = std::make_shared<FakeProgram>(seconds, steps);
    job->tenant = &tenant_;
    job->session_key = 1;
    job->done = [this](JobResult result) { results_.push_back(std::move(result)); };
    EXPECT_TRUE(lane_.Submit(job).ok());
    return job;
  }
  // The oldest program began now, took that long, and its end is seen then.
  void Complete(absl::Duration took, std::vector<float> op_seconds, bool timed = true) {
    FakeDevice::Launched launched = device_.TakeOne();
    kernels::LaunchResult result;
    result.started = clock_.Now();
    result.device_seconds = absl::ToDoubleSeconds(took);
    result.op_seconds = std::move(op_seconds);
    result.ops_timed = timed;
    clock_.Advance(took);
    std::move(launched.done)(std::move(result));
  }
  std::vector<TimelineEvent> Take() {
    std::vector<TimelineEvent> events;
    recording_.Take(1000, [&](const TimelineEvent& event) { events.push_back(event); });
    return events;
  }
  absl::Duration Since(absl::Time time) { return time - recording_.begin(); }
  static std::vector<Kind> Kinds(const std::vector<TimelineEvent>& events) {
    std::vector<Kind> kinds;
    for (const TimelineEvent& event : events) kinds.push_back(event.kind);
    return kinds;
  }

  FakeDevice device_;
  FakeBackend backend_{device_};
  FakeClock clock_;
  Metrics metrics_{"test"};
  Tenant tenant_{0, {.name = "red"}};
  Timeline timeline_;
  Recording recording_;
  std::vector<JobResult> results_;
  Lane lane_{backend_, {.lookahead = absl::Milliseconds(2)}, clock_, metrics_, timeline_};
};

TEST_F(TimelineLaneTest, AProgramIsItsLaunchItsWaitItsRunAndItsOps) {
  Submit(0.003, 2);
  clock_.Advance(absl::Milliseconds(4));
  Complete(absl::Milliseconds(3), {0.001f, 0.002f});
  const std::vector<TimelineEvent> events = Take();
  ASSERT_THAT(Kinds(events),
              ElementsAre(Kind::kLaunch, Kind::kQueue, Kind::kDevice, Kind::kOp, Kind::kOp));
  for (const TimelineEvent& event : events) {
    EXPECT_EQ(event.program, events[0].program);
    EXPECT_NE(event.program, 0u);
    EXPECT_EQ(event.device, "fake:0");
    EXPECT_EQ(event.tenant, "red");
    EXPECT_EQ(event.name, event.kind == Kind::kOp ? "fake_f32" : "");
    EXPECT_FALSE(event.estimated);
  }
  EXPECT_EQ(Since(events[0].begin), absl::ZeroDuration());
  EXPECT_EQ(events[0].duration, absl::ZeroDuration());  // the clock stood still
  EXPECT_EQ(Since(events[1].begin), absl::ZeroDuration());
  EXPECT_EQ(events[1].duration, absl::Milliseconds(4));
  EXPECT_EQ(Since(events[2].begin), absl::Milliseconds(4));
  EXPECT_EQ(events[2].duration, absl::Milliseconds(3));
  // The answer's own report says the same.
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(absl::Seconds(results_[0].queue_seconds), events[1].duration);
  EXPECT_EQ(absl::Seconds(results_[0].launch.device_seconds), events[2].duration);
  // Ops follow one another from the program's start to its end.
  EXPECT_EQ(events[3].begin, events[2].begin);
  EXPECT_EQ(events[3].begin + events[3].duration, events[4].begin);
  EXPECT_LE(events[4].begin + events[4].duration, events[2].begin + events[2].duration);
  EXPECT_NEAR(absl::ToDoubleSeconds(events[3].duration), 0.001, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(events[4].duration), 0.002, 1e-9);
}

TEST_F(TimelineLaneTest, OpsEndWithTheirProgramHoweverTheirTimesWereRounded) {
  Submit(0.003, 3);
  Complete(absl::Milliseconds(3), {0.002f, 0.0015f, 0.001f});
  const std::vector<TimelineEvent> events = Take();
  ASSERT_EQ(events.size(), 6u);
  const absl::Time end = events[2].begin + events[2].duration;
  EXPECT_EQ(events[4].begin + events[4].duration, end);
  EXPECT_EQ(events[5].begin, end);
  EXPECT_EQ(events[5].duration, absl::ZeroDuration());
}

TEST_F(TimelineLaneTest, OpsThatWereNotTimedAreMarked) {
  Submit(0.002, 2);
  Complete(absl::Milliseconds(2), {0.001f, 0.001f}, /*timed=*/false);
  for (const TimelineEvent& event : Take()) {
    EXPECT_EQ(event.estimated, event.kind == Kind::kOp);
  }
}

TEST_F(TimelineLaneTest, ProgramsHaveDifferentNumbers) {
  Submit(0.001);
  Submit(0.001);
  device_.CompleteAll();
  std::vector<uint64_t> numbers;
  for (const TimelineEvent& event : Take()) numbers.push_back(event.program);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  EXPECT_EQ(numbers.size(), 2u);
}

TEST_F(TimelineLaneTest, WhatWasNeverLaunchedOnlyWaited) {
  Submit(0.005);
  absl::Notification dropped;
  auto late = std::make_shared<Job>();
  late->program = std::make_shared<FakeProgram>(0.001);
  late->tenant = &tenant_;
  late->session_key = 2;
  late->deadline = clock_.Now() + absl::Milliseconds(8);
  late->done = [&](JobResult) { dropped.Notify(); };
  ASSERT_TRUE(lane_.Submit(late).ok());
  auto cancelled = Submit(0.005);
  Take();
  clock_.Advance(absl::Milliseconds(2));  // 3 ms are left: no room yet
  lane_.Cancel(cancelled, absl::CancelledError("no"));
  std::vector<TimelineEvent> events = Take();
  ASSERT_THAT(Kinds(events), ElementsAre(Kind::kQueue));
  EXPECT_EQ(events[0].duration, absl::Milliseconds(2));
  // There is room by now, and whoever looks first, the lane's thread or the end, finds the other
  // late.
  clock_.Advance(absl::Milliseconds(7));
  device_.CompleteOne();
  dropped.WaitForNotification();
  lane_.Stop();
  events = Take();
  const auto waits = std::count_if(events.begin(), events.end(), [](const TimelineEvent& event) {
    return event.kind == Kind::kQueue && event.duration == absl::Milliseconds(9);
  });
  EXPECT_EQ(waits, 1);
}

TEST_F(TimelineLaneTest, NothingIsAddedWhileNobodyWatches) {
  recording_.Stop();
  auto job = Submit(0.001);
  EXPECT_EQ(job->traced_as, 0u);
  device_.CompleteAll();
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(TimelineLaneTest, WhoeverBeginsDuringAProgramSeesItsWaitAndItsRun) {
  recording_.End();
  Submit(0.001);
  recording_ = *timeline_.Begin(clock_.Now());
  Complete(absl::Milliseconds(1), {0.001f});
  const std::vector<TimelineEvent> events = Take();
  ASSERT_THAT(Kinds(events), ElementsAre(Kind::kQueue, Kind::kDevice, Kind::kOp));
  EXPECT_NE(events[0].program, 0u);
}

}  // namespace
}  // namespace gemmd::server
