#include "server/engine/scheduling/lane.h"

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LaneTest : public ::testing::Test {
 protected:
  explicit LaneTest(bool one_launcher = false) : device_(one_launcher) {}

  std::shared_ptr<Job> Make(double seconds, const std::string& name) {
    auto job = std::make_shared<Job>();
    job->program = std::make_shared<FakeProgram>(seconds);
    job->tenant = &tenant_;
    job->session_key = 1;
    job->done = [this, name](JobResult result) {
      absl::MutexLock lock(&mutex_);
      answered_.push_back(name + ":" + absl::StatusCodeToString(result.status.code()));
      last_ = result.status;
    };
    return job;
  }
  std::shared_ptr<Job> Submit(double seconds, const std::string& name) {
    auto job = Make(seconds, name);
    EXPECT_TRUE(lane_.Submit(job).ok());
    return job;
  }
  // What the lane's thread does comes in its own time.
  bool ComesToLaunch(int programs) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (device_.pending() < programs && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    return device_.pending() == programs;
  }
  std::vector<std::string> answered() {
    absl::MutexLock lock(&mutex_);
    return answered_;
  }

  FakeDevice device_;
  FakeBackend backend_{device_};
  FakeClock clock_;
  Metrics metrics_{"test"};
  Tenant tenant_{0, {}};
  absl::Mutex mutex_;
  std::vector<std::string> answered_;
  absl::Status last_;
  Timeline timeline_;
  Lane lane_{backend_, {.lookahead = absl::Milliseconds(2)}, clock_, metrics_, timeline_};
};

TEST_F(LaneTest, LaunchesAtOnceAndAnswersWhenDone) {
  Submit(0.001, "a");
  EXPECT_EQ(device_.pending(), 1);
  EXPECT_THAT(answered(), IsEmpty());
  device_.CompleteOne();
  EXPECT_THAT(answered(), ElementsAre("a:OK"));
  EXPECT_EQ(lane_.stats().completed, 1);
  EXPECT_DOUBLE_EQ(lane_.stats().busy_seconds, 0.001);
}

TEST_F(LaneTest, WaitsForWhatItsCallerWaitsForAndNothingElseIsQueued) {
  const auto submit = [&](bool caller_waits) {
    auto job = Make(0.001, "x");
    job->caller_waits = caller_waits;
    EXPECT_TRUE(lane_.Submit(std::move(job)).ok());
  };
  submit(false);
  FakeDevice::Launched first = device_.TakeOne();
  EXPECT_FALSE(first.waited_for);
  submit(true);
  FakeDevice::Launched second = device_.TakeOne();
  EXPECT_TRUE(second.waited_for);
  // The look-ahead is full now: the next is launched by whoever completes one, who does not wait
  // for it.
  submit(true);
  ASSERT_EQ(device_.pending(), 0);
  std::move(first.done)({});
  ASSERT_EQ(device_.pending(), 1);
  EXPECT_FALSE(device_.TakeOne().waited_for);
  std::move(second.done)({});
}

// While a caller waits on the stream nobody launches: the device would have nothing behind it.
TEST_F(LaneTest, WaitsForNobodyForAWhileOnceCallersMet) {
  const auto submit = [&](absl::AnyInvocable<void() &&> launched) {
    auto job = Make(0.001, "x");
    job->caller_waits = true;
    job->launched = std::move(launched);
    EXPECT_TRUE(lane_.Submit(std::move(job)).ok());
  };
  const auto next_is_waited_for = [&] {
    submit(nullptr);
    FakeDevice::Launched next = device_.TakeOne();
    std::move(next.done)({});
    return next.waited_for;
  };
  EXPECT_TRUE(next_is_waited_for());
  submit([&] { submit(nullptr); });  // the second comes while the first is launched
  device_.CompleteAll();
  int unwaited = 0;
  while (!next_is_waited_for()) ASSERT_LT(++unwaited, 100);
  EXPECT_GT(unwaited, 0);
  EXPECT_TRUE(next_is_waited_for());
}

TEST_F(LaneTest, LooksAheadByEstimatedTimeAndNoFurther) {
  for (int i = 0; i < 10; ++i) Submit(0.001, "x");
  EXPECT_EQ(device_.pending(), 2);  // 2 ms of look-ahead
  EXPECT_EQ(lane_.stats().queued, 8);
  device_.CompleteOne();
  EXPECT_EQ(device_.pending(), 2);
}

TEST_F(LaneTest, LetsOneProgramThroughHoweverLong) {
  Submit(5.0, "long");
  Submit(0.001, "short");
  EXPECT_EQ(device_.pending(), 1);
  device_.CompleteOne();
  EXPECT_EQ(device_.pending(), 1);
  device_.CompleteOne();
  EXPECT_THAT(answered(), ElementsAre("long:OK", "short:OK"));
}

TEST_F(LaneTest, LaunchesTheNextWhenTheRunningOneLeavesRoom) {
  Submit(0.005, "a");
  Submit(0.005, "b");
  EXPECT_EQ(device_.pending(), 1);
  clock_.Advance(absl::Milliseconds(4));  // 1 ms is left, 2 ms may be
  EXPECT_TRUE(ComesToLaunch(2));
  Submit(0.001, "c");                      // 6 ms are left
  clock_.Advance(absl::Milliseconds(90));  // "a" is late; "b" has not begun
  EXPECT_EQ(lane_.stats().queued, 1);
  device_.CompleteOne();
  EXPECT_EQ(device_.pending(), 1);
  clock_.Advance(absl::Milliseconds(4));
  EXPECT_TRUE(ComesToLaunch(2));
  device_.CompleteAll();
  EXPECT_THAT(answered(), ElementsAre("a:OK", "b:OK", "c:OK"));
}

TEST_F(LaneTest, EstimatesFollowWhatProgramsReallyTook) {
  for (int i = 0; i < 100; ++i) {
    Submit(0.001, "x");
    device_.CompleteOne(0.0001);  // ten times faster than the model says
  }
  for (int i = 0; i < 30; ++i) Submit(0.001, "y");
  EXPECT_GE(device_.pending(), 15);  // 2 ms hold about 20 of 0.1 ms
}

TEST_F(LaneTest, CancelTakesOutWhatHasNotStarted) {
  Submit(0.005, "running");
  auto waiting = Submit(0.005, "waiting");
  lane_.Cancel(waiting, absl::CancelledError("no"));
  EXPECT_THAT(answered(), ElementsAre("waiting:CANCELLED"));
  lane_.Cancel(waiting, absl::CancelledError("twice"));
  device_.CompleteAll();
  EXPECT_THAT(answered(), ElementsAre("waiting:CANCELLED", "running:OK"));
  EXPECT_EQ(device_.total(), 1);
}

TEST_F(LaneTest, CancelLeavesWhatHasStarted) {
  auto running = Submit(0.001, "running");
  lane_.Cancel(running, absl::CancelledError("late"));
  EXPECT_THAT(answered(), IsEmpty());
  device_.CompleteOne();
  EXPECT_THAT(answered(), ElementsAre("running:OK"));
}

TEST_F(LaneTest, RefusesWhatCannotFinishInTime) {
  Submit(0.5, "ahead");
  auto job = Make(0.1, "late");
  job->deadline = clock_.Now() + absl::Milliseconds(300);
  const absl::Status refused = lane_.Submit(job);
  EXPECT_EQ(refused.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(refused), "DEADLINE");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("nothing ran"));
  device_.CompleteAll();
  EXPECT_THAT(answered(), ElementsAre("ahead:OK"));
}

TEST_F(LaneTest, DropsWhatIsLateWhenItsTurnComes) {
  Submit(0.005, "ahead");
  auto job = Make(0.001, "late");
  job->deadline = clock_.Now() + absl::Milliseconds(20);
  ASSERT_TRUE(lane_.Submit(job).ok());
  clock_.Advance(absl::Milliseconds(30));
  device_.CompleteAll();
  lane_.Stop();  // its thread may have been first to see that the other is late
  EXPECT_EQ(device_.total(), 1);
  EXPECT_THAT(answered(), ::testing::UnorderedElementsAre("ahead:OK", "late:DEADLINE_EXCEEDED"));
}

TEST_F(LaneTest, AFailureStopsWhatStandsBehindItInItsChain) {
  auto chain = std::make_shared<Chain>();
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    auto job = Make(0.005, std::string(1, 'a' + i));
    job->chain = chain;
    job->chain_position = i;
    ASSERT_TRUE(lane_.Submit(job).ok());
  }
  Submit(0.005, "free");
  device_.CompleteOne(0.005, absl::InternalError("fault"));
  device_.CompleteAll();
  EXPECT_THAT(answered(),
              ::testing::UnorderedElementsAre("a:INTERNAL", "b:ABORTED", "c:ABORTED", "free:OK"));
}

TEST_F(LaneTest, EndingASessionAnswersItsQueuedPrograms) {
  Submit(0.005, "running");
  Submit(0.005, "waiting");
  lane_.CancelSession(1, absl::CancelledError("session ended"));
  EXPECT_THAT(answered(), ElementsAre("waiting:CANCELLED"));
  device_.CompleteAll();
  EXPECT_THAT(answered(), ElementsAre("waiting:CANCELLED", "running:OK"));
}

TEST_F(LaneTest, EndingASessionStopsItsProgramThatRuns) {
  Submit(0.005, "running");
  auto other = Make(0.0001, "other");
  other->session_key = 2;
  ASSERT_TRUE(lane_.Submit(std::move(other)).ok());
  lane_.CancelSession(1, WithReason(absl::CancelledError("the session ended"), "SESSION_GONE"));
  FakeDevice::Launched running = device_.TakeOne();
  EXPECT_TRUE(running.bindings.stop->asked());
  std::move(running.done)({.status = absl::CancelledError("stopped"),
                           .stopped = kernels::StopCause::kAsked,
                           .started = absl::Now(),
                           .device_seconds = 0.002});
  EXPECT_THAT(answered(), ElementsAre("running:CANCELLED"));
  EXPECT_EQ(ReasonOf(last_), "SESSION_GONE");
  EXPECT_THAT(std::string(last_.message()), HasSubstr("2ms on the device"));
  // The device goes on with others, whom nothing was told.
  FakeDevice::Launched next = device_.TakeOne();
  EXPECT_FALSE(next.bindings.stop->asked());
  std::move(next.done)({.started = absl::Now()});
  EXPECT_THAT(answered(), ElementsAre("running:CANCELLED", "other:OK"));
  EXPECT_EQ(lane_.stats().queued_seconds, 0.0);
  EXPECT_EQ(lane_.stats().busy_seconds, 0.002);
}

TEST_F(LaneTest, AProgramThatPassesItsLimitOrDeadlineIsToldWhich) {
  for (const auto& [cause, code, reason] :
       {std::tuple(kernels::StopCause::kLimit, absl::StatusCode::kResourceExhausted,
                   "PROGRAM_LIMIT"),
        std::tuple(kernels::StopCause::kDeadline, absl::StatusCode::kDeadlineExceeded,
                   "DEADLINE")}) {
    Submit(0.005, "x");
    FakeDevice::Launched launched = device_.TakeOne();
    EXPECT_EQ(launched.bindings.stop->limit(), tenant_.limits().max_program_time);
    std::move(launched.done)({.status = absl::CancelledError("stopped"),
                              .stopped = cause,
                              .started = absl::Now(),
                              .device_seconds = 1.5});
    EXPECT_EQ(last_.code(), code);
    EXPECT_EQ(ReasonOf(last_), reason);
  }
  EXPECT_EQ(lane_.stats().queued_seconds, 0.0);
}

TEST_F(LaneTest, CancellingAllAnswersWhatWaitsAndStopsWhatRuns) {
  Submit(0.005, "running");
  Submit(0.005, "waiting");
  lane_.CancelAll(absl::UnavailableError("the server stops"));
  EXPECT_THAT(answered(), ElementsAre("waiting:UNAVAILABLE"));
  FakeDevice::Launched running = device_.TakeOne();
  EXPECT_TRUE(running.bindings.stop->asked());
  std::move(running.done)({.status = absl::CancelledError("stopped"),
                           .stopped = kernels::StopCause::kAsked,
                           .started = absl::Now()});
  EXPECT_THAT(answered(), ElementsAre("waiting:UNAVAILABLE", "running:UNAVAILABLE"));
}

TEST_F(LaneTest, StopAnswersEverything) {
  Submit(0.005, "running");
  Submit(0.005, "waiting");
  lane_.Stop();
  EXPECT_THAT(answered(), ElementsAre("waiting:UNAVAILABLE", "running:OK"));
  EXPECT_EQ(lane_.Submit(Make(0.001, "after")).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LaneTest, ManyThreadsSubmittingAndOneCompletingLoseNothing) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) Submit(0.0001, "x");
    });
  }
  while (lane_.stats().completed < kThreads * kEach) {
    if (!device_.CompleteOne()) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered().size(), kThreads * kEach);
  EXPECT_EQ(lane_.stats().queued, 0);
  EXPECT_EQ(lane_.stats().launched, 0);
  EXPECT_EQ(lane_.stats().queued_seconds, 0.0);
}

TEST_F(LaneTest, TellsAChainWhetherItsNextProgramIsAnsweredNext) {
  const auto ours = std::make_shared<Chain>();
  const auto theirs = std::make_shared<Chain>();
  std::vector<bool> told;
  for (const auto& chain : {ours, ours, theirs, std::shared_ptr<Chain>(), ours, ours}) {
    auto job = Make(0.0001, "x");
    job->chain = chain;
    job->done = [&](JobResult result) { told.push_back(result.more_of_chain); };
    ASSERT_TRUE(lane_.Submit(std::move(job)).ok());
  }
  ASSERT_EQ(device_.pending(), 6);
  for (const bool more : {true, true, true, true, false, true}) {
    std::move(device_.TakeOne().done)({.more = more});
  }
  EXPECT_THAT(told, ElementsAre(true, false, false, false, false, false));
}

// Where launches are dear.
class OneLauncherTest : public LaneTest {
 protected:
  OneLauncherTest() : LaneTest(/*one_launcher=*/true) {}
};

TEST_F(OneLauncherTest, SubmittersLaunchUntilThereIsABacklog) {
  for (int i = 0; i < 10; ++i) Submit(0.0001, std::to_string(i));
  ASSERT_TRUE(ComesToLaunch(10));
  int here = 0;
  for (int i = 0; i < 10; ++i) {
    FakeDevice::Launched next = device_.TakeOne();
    const bool launched_here = next.launcher == std::this_thread::get_id();
    EXPECT_TRUE(launched_here || i >= 4);
    here += launched_here ? 1 : 0;
    std::move(next.done)({});
    EXPECT_EQ(answered().back(), std::to_string(i) + ":OK");
  }
  EXPECT_EQ(here, 4);
}

// Who submits them has another device's to submit, and each takes a while.
TEST_F(OneLauncherTest, WhatIsLeftToTheLanesThreadIsLaunchedThereHoweverIdleTheDevice) {
  for (int i = 0; i < 3; ++i) {
    auto job = Make(0.0001, std::to_string(i));
    job->left = true;
    ASSERT_TRUE(lane_.Submit(std::move(job)).ok());
  }
  ASSERT_TRUE(ComesToLaunch(3));
  for (int i = 0; i < 3; ++i) {
    FakeDevice::Launched next = device_.TakeOne();
    EXPECT_NE(next.launcher, std::this_thread::get_id());
    std::move(next.done)({});
    EXPECT_EQ(answered().back(), std::to_string(i) + ":OK");
  }
}

TEST_F(OneLauncherTest, WhoPollsForRingsLaunchesThemAll) {
  for (int i = 0; i < 10; ++i) {
    auto job = Make(0.0001, "x");
    job->armed = true;
    ASSERT_TRUE(lane_.Submit(std::move(job)).ok());
  }
  ASSERT_EQ(device_.pending(), 10);
  for (int i = 0; i < 10; ++i) {
    FakeDevice::Launched next = device_.TakeOne();
    EXPECT_EQ(next.launcher, std::this_thread::get_id());
    std::move(next.done)({});
  }
}

TEST_F(OneLauncherTest, AnIdleDeviceIsLaunchedOnAndWaitedForByTheCaller) {
  auto job = Make(0.0001, "x");
  job->caller_waits = true;
  ASSERT_TRUE(lane_.Submit(std::move(job)).ok());
  FakeDevice::Launched next = device_.TakeOne();
  EXPECT_TRUE(next.waited_for);
  EXPECT_EQ(next.launcher, std::this_thread::get_id());
  std::move(next.done)({});
}

TEST_F(OneLauncherTest, ManyThreadsLoseNothingAndStopAnswersTheRest) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        auto job = Make(0.0001, "x");
        job->caller_waits = t % 2 == 0;
        EXPECT_TRUE(lane_.Submit(std::move(job)).ok());
      }
    });
  }
  while (lane_.stats().completed < kThreads * kEach / 2) {
    if (!device_.CompleteOne()) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  lane_.Stop();
  EXPECT_EQ(answered().size(), kThreads * kEach);
  EXPECT_EQ(lane_.stats().queued, 0);
  EXPECT_EQ(lane_.stats().launched, 0);
}

}  // namespace
}  // namespace gemmd::server
