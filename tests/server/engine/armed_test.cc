// Armed plans on a device whose programs end when the test says so: what a ring starts, what its
// end leaves in the shared memory, and what becomes of slots whose plan, buffers or session go.

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/armed_plans.h"
#include "server/engine/reason.h"
#include "tests/server/engine/armed_caller.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 64;

class ArmedTest : public StateTest {
 protected:
  explicit ArmedTest(Limits limits = {}, bool signals = false) : StateTest(limits) {
    device_.signals = signals;
    session_ = Open(*red_);
    from_ = AddBuffer(*session_, kBytes);
    to_ = AddBuffer(*session_, kBytes);
    SlotTable slots(*session_);
    const kernels::Op copy = kernels::CopyOp{View(slots, from_), View(slots, to_)};
    plan_ = *session_->AddPlan(*CompilePlan(*session_, {&copy, 1}, slots, {}, "copy"));
    region_ = *state_->armed().RegionOf(*session_, 0);
    caller_ = std::make_unique<ArmedCaller>(region_->memfd(), region_->wake_fd(), region_->slots());
  }
  ~ArmedTest() override {
    device_.CompleteAll();
    session_.reset();
    region_.reset();
    state_.reset();
  }

  static kernels::TensorRef View(SlotTable& slots, const Handle& handle) {
    kernels::TensorRef tensor;
    tensor.slot = *slots.Resolve(handle);
    tensor.shape = kernels::MakeDims({8});
    tensor.strides = kernels::MakeDims({1});
    return tensor;
  }
  absl::StatusOr<ArmedRegion::Armed> Arm(const ArmOptions& options = {},
                                         std::vector<Rebinding> rebind = {}) {
    return region_->Arm(*session_->Use(clock_.Now()), plan_, std::move(rebind), options);
  }
  int Slot(const ArmOptions& options = {}) { return Arm(options)->slot; }
  // The poller submits in its own time.
  bool Launched(int programs) {
    return Comes([&] { return device_.pending() == programs; });
  }
  static bool Comes(const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!condition()) {
      if (absl::Now() > end) return false;
      absl::SleepFor(absl::Microseconds(200));
    }
    return true;
  }
  // A ring that is answered without having run: the fill with NaN is completed, if there is one.
  gemmd_armed_report Refused(int slot) {
    EXPECT_TRUE(Comes([&] {
      device_.CompleteAll();
      return caller_->done(slot).load() != 0;
    }));
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
    return caller_->Report(slot);
  }
  double poll_seconds() { return metrics_.ArmedPollSeconds().Value(); }

  std::shared_ptr<Session> session_;
  Handle from_, to_, plan_;
  std::shared_ptr<ArmedRegion> region_;
  std::unique_ptr<ArmedCaller> caller_;
};

TEST_F(ArmedTest, TheRegionSaysWhatItIs) {
  const gemmd_armed_header& header = caller_->header();
  EXPECT_EQ(header.magic, GEMMD_ARMED_MAGIC);
  EXPECT_EQ(header.version, GEMMD_ARMED_VERSION);
  EXPECT_EQ(header.slots, 64u);
  EXPECT_EQ(header.size_bytes, gemmd_armed_size_bytes(64));
  EXPECT_EQ(header.state, GEMMD_ARMED_OPEN);
  EXPECT_EQ(region_->size_bytes(), gemmd_armed_size_bytes(64));
}

TEST_F(ArmedTest, ARingRunsThePlanAndItsEndIsReported) {
  const int slot = Slot();
  for (uint64_t run = 1; run <= 3; ++run) {
    caller_->Ring(slot);
    ASSERT_TRUE(Launched(1));
    EXPECT_EQ(caller_->gate(slot).load(), GEMMD_ARMED_IDLE);  // taken back
    EXPECT_EQ(caller_->done(slot).load(), 0u);
    ASSERT_TRUE(device_.CompleteOne(0.25));
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
    const gemmd_armed_report report = caller_->Report(slot);
    EXPECT_EQ(report.run, run);
    EXPECT_EQ(report.host_done, run);
    EXPECT_EQ(report.code, 0);
    EXPECT_EQ(report.device_ns, 250'000'000u);
    EXPECT_STREQ(report.reason, "");
  }
  EXPECT_EQ(metrics_.ArmedRuns("ok").Value(), 3);
  EXPECT_EQ(metrics_.Runs("fake:0", "armed", "ok").Value(), 3);
  EXPECT_EQ(session_->stats().queued_programs, 0);
}

TEST_F(ArmedTest, SlotsRunSideBySide) {
  const int first = Slot(), second = Slot();
  EXPECT_NE(first, second);
  caller_->Ring(second);
  ASSERT_TRUE(Launched(1));
  caller_->Ring(first);
  ASSERT_TRUE(Launched(2));
  device_.CompleteAll();
  EXPECT_EQ(caller_->Wait(first), GEMMD_ARMED_RAN);
  EXPECT_EQ(caller_->Wait(second), GEMMD_ARMED_RAN);
}

TEST_F(ArmedTest, AGateSetBeforeTheRunIsDoneRunsAgain) {
  const int slot = Slot();
  for (int ring = 1; ring <= 3; ++ring) {
    ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == 0; }));
    caller_->Ring(slot);
  }
  ASSERT_TRUE(Launched(2));  // the third waits for the end of the first
  EXPECT_EQ(caller_->gate(slot).load(), GEMMD_ARMED_RUNG);
  ASSERT_TRUE(device_.CompleteOne());
  ASSERT_TRUE(Comes([&] { return device_.total() == 3; }));
  device_.CompleteAll();
  EXPECT_TRUE(Comes([&] { return caller_->Report(slot).run == 3; }));
  EXPECT_EQ(device_.total(), 3);
}

TEST_F(ArmedTest, ASleepingCallerIsWoken) {
  const int slot = Slot();
  for (uint32_t run = 0; run < 50; ++run) {
    caller_->Ring(slot);
    std::thread device([&] {
      ASSERT_TRUE(Launched(1));
      device_.CompleteOne();
    });
    EXPECT_EQ(caller_->Sleep(slot, run), GEMMD_ARMED_RAN);
    device.join();
  }
}

TEST_F(ArmedTest, ThePollerSleepsAndNoRingIsLost) {
  const int slot = Slot();
  for (int run = 0; run < 20; ++run) {
    if (run % 2 == 0) {
      ASSERT_TRUE(Comes([&] { return caller_->header().poller_sleeps != 0; }));
    }
    caller_->Ring(slot);
    ASSERT_TRUE(Launched(1)) << run;
    device_.CompleteOne();
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  }
}

TEST_F(ArmedTest, AStreamsRingNeedsNoWake) {
  const int slot = Slot({.rung_by_stream = true});
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(Comes([&] { return caller_->header().poller_sleeps != 0; }));
    caller_->Set(slot);
    ASSERT_TRUE(Launched(1));
    device_.CompleteOne();
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  }
}

TEST_F(ArmedTest, AnIdlePollerSleepsOnEvenWithSlotsArmed) {
  Slot();
  ASSERT_TRUE(Comes([&] { return caller_->header().poller_sleeps != 0; }));
  const double before = poll_seconds();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(poll_seconds(), before);
}

TEST_F(ArmedTest, AFailedRunSaysSoBehindItsNan) {
  const int slot = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  device_.CompleteOne(0, absl::DataLossError("the device lost it"));
  EXPECT_EQ(device_.pending(), 1);  // the fill of what the plan writes
  EXPECT_EQ(caller_->done(slot).load(), 0u);
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
  const gemmd_armed_report report = caller_->Report(slot);
  EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_STREQ(report.message, "the device lost it");
  EXPECT_EQ(region_->List()[0].failed_runs, 1);
  caller_->Ring(slot);  // and goes on
  ASSERT_TRUE(Launched(1));
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  EXPECT_EQ(caller_->Report(slot).code, 0);
}

TEST_F(ArmedTest, OnAFencedDeviceDoneIsSetAllTheSame) {
  const int slot = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  device_.Fault(WithReason(absl::UnavailableError("fenced"), reason::kDeviceFenced));
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
  EXPECT_STREQ(caller_->Report(slot).reason, "DEVICE_FENCED");
  EXPECT_EQ(device_.pending(), 0);
}

TEST_F(ArmedTest, ARingOfASlotThatIsNotArmedFails) {
  caller_->Ring(7);
  const gemmd_armed_report report = Refused(7);
  EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_STREQ(report.reason, "NOT_ARMED");
  EXPECT_EQ(device_.total(), 0);
}

TEST_F(ArmedTest, AGateThatHoldsNonsenseFailsTheRunAlone) {
  const int slot = Slot(), other = Slot();
  caller_->Ring(slot, 0xdeadbeef);
  EXPECT_EQ(Refused(slot).code, static_cast<int>(absl::StatusCode::kInvalidArgument));
  caller_->Ring(other);
  ASSERT_TRUE(Launched(1));
}

TEST_F(ArmedTest, ADisarmedSlotCancelsWhatIsQueuedAndIsFreeForAnother) {
  const int slot = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  ASSERT_TRUE(region_->Disarm({slot}).ok());
  EXPECT_EQ(region_->Disarm({slot}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(metrics_.ArmedSlots().Value(), 0);
  EXPECT_NE(Slot(), slot);  // one run of it is still under way
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  EXPECT_EQ(Slot(), slot);
  EXPECT_EQ(caller_->Report(slot).run, 0u);  // as new
}

TEST_F(ArmedTest, DisarmNamesTheSlotThatIsNotArmedAndLeavesTheOthers) {
  const int slot = Slot();
  for (const int bad : {-1, 63, 64, 1 << 30}) {
    const absl::Status status = region_->Disarm({slot, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(bad)));
  }
  EXPECT_EQ(region_->List().size(), 1u);
}

TEST_F(ArmedTest, ADeletedBufferTakesTheSlotWithIt) {
  const int slot = Slot();
  const std::weak_ptr<Buffer> lease = session_->FindBuffer(to_)->buffer;
  ASSERT_EQ(*session_->DeleteBuffers({&to_, 1}), kBytes);  // nothing keeps it
  EXPECT_TRUE(lease.expired());
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "BUFFER_GONE");
  EXPECT_EQ(ReasonOf(region_->List()[0].last), "BUFFER_GONE");
  EXPECT_EQ(ReasonOf(Arm().status()), "BUFFER_GONE");
  EXPECT_EQ(region_->List().size(), 1u);
}

TEST_F(ArmedTest, ADeletedPlanTakesTheSlotWithIt) {
  const int slot = Slot();
  ASSERT_TRUE(session_->DeletePlan(plan_).ok());
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "PLAN_GONE");
  EXPECT_EQ(ReasonOf(Arm().status()), "PLAN_GONE");
}

TEST_F(ArmedTest, ABufferInAnothersPlaceIsRunOnAndWatched) {
  const Handle other = AddBuffer(*session_, kBytes);
  const int slot = Arm({}, {{to_, other}})->slot;
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  auto launched = device_.TakeOne();
  EXPECT_EQ(launched.bindings.slots[1], session_->FindBuffer(other)->buffer->memory().address());
  std::move(launched.done)({});
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  ASSERT_TRUE(session_->DeleteBuffers({&to_, 1}).ok());  // not this slot's
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  ASSERT_TRUE(session_->DeleteBuffers({&other, 1}).ok());
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "BUFFER_GONE");
}

TEST_F(ArmedTest, APublishedBufferIsNotWritten) {
  const int slot = Slot();
  ASSERT_TRUE(state_->published().Publish(*red_, "w", *session_->FindBuffer(to_)).ok());
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "READ_ONLY");
  EXPECT_EQ(device_.total(), 0);  // not even with NaN
}

TEST_F(ArmedTest, TheEndOfTheSessionFreesAllOnceItsRunsAreDone) {
  const int slot = Slot(), queued = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  for (int i = 0; i < 4; ++i) caller_->Ring(queued);  // past the look-ahead
  bool freed = false;
  Session::Freed total;
  ASSERT_TRUE(state_->sessions().End(*session_, EndCause::kClosed, [&](Session::Freed what) {
    total = what;
    freed = true;
  }));
  EXPECT_EQ(caller_->header().state, GEMMD_ARMED_ENDED);
  EXPECT_TRUE(region_->List().empty());
  EXPECT_EQ(metrics_.ArmedSlots().Value(), 0);
  EXPECT_FALSE(freed);  // one run is under way
  device_.CompleteAll();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  EXPECT_NE(caller_->Wait(queued), 0u);
  EXPECT_TRUE(Comes([&] { return freed; }));
  EXPECT_EQ(total.buffers, 2);
  EXPECT_EQ(used_bytes(), 0);
}

// Nobody looks at gates any more: whoever rings now is told by the header.
TEST_F(ArmedTest, WhatIsRungWhenTheSessionEndsIsAnswered) {
  const int slot = Slot();
  state_->armed().poller().Stop();
  caller_->Set(slot);
  state_->sessions().End(*session_, EndCause::kClosed);
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
  EXPECT_STREQ(caller_->Report(slot).reason, "SESSION_GONE");
}

TEST_F(ArmedTest, ADrainRefusesRings) {
  const int slot = Slot();
  state_->Refuse();
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "DRAINING");
}

TEST_F(ArmedTest, ARingThatCannotStartInTimeFails) {
  const int slot = Slot({.deadline = absl::Microseconds(10)});  // it is estimated at 1 ms
  caller_->Ring(slot);
  EXPECT_STREQ(Refused(slot).reason, "DEADLINE");
}

TEST_F(ArmedTest, PlansWithReadsAreNotArmed) {
  SlotTable slots(*session_);
  const kernels::Op read = kernels::ReadOp{View(slots, from_)};
  const Handle plan = *session_->AddPlan(*CompilePlan(*session_, {&read, 1}, slots, {}, "read"));
  const auto armed = region_->Arm(*session_->Use(clock_.Now()), plan, {}, {});
  EXPECT_EQ(armed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(armed.status().message()), HasSubstr("HOST_SHARED"));
}

TEST_F(ArmedTest, ARegionIsMadeOnce) {
  EXPECT_EQ(*state_->armed().RegionOf(*session_, 16), region_);
  EXPECT_EQ(state_->armed().RegionOf(*session_, 65).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state_->armed().RegionOf(*session_, -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto other = Open(*red_);
  EXPECT_EQ(state_->armed().RegionOf(*other, 1025).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*state_->armed().RegionOf(*other, 17))->slots(), 32);
}

TEST_F(ArmedTest, SlotsRunOut) {
  for (int i = 0; i < 64; ++i) EXPECT_EQ(Slot(), i);
  EXPECT_EQ(ReasonOf(Arm().status()), "ARMED_LIMIT");
  ASSERT_TRUE(region_->Disarm({13}).ok());
  EXPECT_EQ(Slot(), 13);
}

TEST_F(ArmedTest, WhatOneSideScribblesTheOtherDoesNotRead) {
  const int slot = Slot();
  const uint32_t size = gemmd_armed_size_bytes(64);
  const uint32_t gates = gemmd_armed_gates_offset(64), args = gemmd_armed_args_offset(64);
  std::memset(caller_->base(), 0xa5, gates);
  std::memset(static_cast<char*>(caller_->base()) + args, 0xa5, size - args);
  caller_->done(slot).store(0);
  const uint64_t one = 1;
  ASSERT_EQ(write(region_->wake_fd(), &one, sizeof(one)), 8);
  caller_->Set(slot);
  ASSERT_TRUE(Launched(1));
  device_.CompleteOne();
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  EXPECT_EQ(caller_->Report(slot).run, 1u);
  EXPECT_EQ(caller_->host_done(slot).load(), 1u);
}

class SignallingTest : public ArmedTest {
 protected:
  SignallingTest() : ArmedTest({}, /*signals=*/true) {}
};

TEST_F(SignallingTest, TheDeviceSetsDoneAndTheReportFollows) {
  const auto armed = *Arm({.rung_by_stream = true});
  EXPECT_TRUE(armed.done_by_stream);
  caller_->Ring(armed.slot);
  ASSERT_TRUE(Launched(1));
  auto launched = device_.TakeOne();
  EXPECT_NE(launched.bindings.signal, nullptr);
  std::move(launched.done)({.device_seconds = 1, .signalled = true});
  EXPECT_EQ(caller_->done(armed.slot).load(), 0u);  // left to the device
  EXPECT_EQ(caller_->Report(armed.slot).run, 1u);
}

// The caller's stream may ring again before the daemon's host has seen the end.
TEST_F(SignallingTest, ARefusalBehindARunUnderWayIsReportedBehindIt) {
  const int slot = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  ASSERT_TRUE(state_->published().Publish(*red_, "w", *session_->FindBuffer(to_)).ok());
  caller_->Ring(slot);
  ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == 0; }));
  EXPECT_EQ(caller_->Report(slot).host_done, 0u);
  auto launched = device_.TakeOne();
  std::move(launched.done)({.device_seconds = 1, .signalled = true});
  ASSERT_TRUE(Comes([&] { return caller_->Report(slot).host_done == 2; }));
  EXPECT_STREQ(caller_->Report(slot).reason, "READ_ONLY");
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
}

class ArmedLimitTest : public ArmedTest {
 protected:
  ArmedLimitTest() : ArmedTest({.max_armed = 2, .max_queued_programs = 1}) {}
};

TEST_F(ArmedLimitTest, ATenantArmsSoManyAndNoMore) {
  const int slot = Slot();
  Slot();
  const absl::Status status = Arm().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "ARMED_LIMIT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit 2"));
  ASSERT_TRUE(region_->Disarm({slot}).ok());
  EXPECT_TRUE(Arm().ok());
}

TEST_F(ArmedLimitTest, RingsCountAsQueuedPrograms) {
  const int first = Slot(), second = Slot();
  caller_->Ring(first);
  ASSERT_TRUE(Launched(1));
  caller_->Ring(second);
  EXPECT_TRUE(Comes([&] { return device_.pending() == 2; }));  // the fill with NaN
  device_.CompleteAll();
  EXPECT_EQ(caller_->Wait(second), GEMMD_ARMED_FAILED);
  EXPECT_STREQ(caller_->Report(second).reason, "QUEUE_LIMIT");
  EXPECT_EQ(caller_->Wait(first), GEMMD_ARMED_RAN);
  EXPECT_EQ(metrics_.Rejected("QUEUE_LIMIT").Value(), 1);
}

}  // namespace
}  // namespace gemmd::server
