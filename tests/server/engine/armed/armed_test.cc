// What a ring starts, and what its end leaves in the shared memory.

#include <utility>

#include "tests/server/engine/armed_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

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
  constexpr int kRings = ArmedRegion::kMostUnanswered + 1;
  const int slot = Slot();
  for (int ring = 1; ring <= kRings; ++ring) {
    ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == GEMMD_ARMED_IDLE; })) << ring;
    caller_->Ring(slot);
  }
  // The last is left in its gate until the first has ended.
  ASSERT_TRUE(Launched(2));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(caller_->gate(slot).load(), GEMMD_ARMED_RUNG);
  ASSERT_TRUE(device_.CompleteOne());
  ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == GEMMD_ARMED_IDLE; }));
  EXPECT_TRUE(ComesAsProgramsEnd([&] { return caller_->Report(slot).run == kRings; }));
  EXPECT_EQ(device_.total(), kRings);
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
  // It says that it sleeps before its last look is counted.
  EXPECT_TRUE(Comes([&] {
    const double before = poll_seconds();
    absl::SleepFor(absl::Milliseconds(50));
    return poll_seconds() == before;
  }));
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

// A host thread that slept sees the ends of several runs late; the stream rings on meanwhile.
TEST_F(SignallingTest, SomeRunsMayBeUnansweredAndAreReportedInOrder) {
  const int slot = Slot({.rung_by_stream = true});
  for (int ring = 0; ring < ArmedRegion::kMostUnanswered; ++ring) {
    caller_->Ring(slot);
    ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == 0; })) << ring;
  }
  caller_->Ring(slot);  // one more than that waits
  for (uint64_t run = 1; run <= ArmedRegion::kMostUnanswered + 1; ++run) {
    ASSERT_TRUE(Comes([&] { return device_.pending() > 0; })) << run;
    auto launched = device_.TakeOne();
    std::move(launched.done)({.device_seconds = 1, .signalled = true});
    ASSERT_TRUE(Comes([&] { return caller_->Report(slot).run == run; })) << run;
  }
  EXPECT_EQ(caller_->gate(slot).load(), 0u);
}

// A caller who does not wait for a refusal rings in vain: the slot is not looked at before it.
TEST_F(SignallingTest, ARingBehindARefusalWaitsForIt) {
  const int slot = Slot();
  caller_->Ring(slot);
  ASSERT_TRUE(Launched(1));
  ASSERT_TRUE(state_->published().Publish(*red_, "w", *session_->FindBuffer(to_)).ok());
  caller_->Ring(slot);
  ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == 0; }));
  caller_->Ring(slot);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(caller_->gate(slot).load(), static_cast<uint32_t>(GEMMD_ARMED_RUNG));
  auto launched = device_.TakeOne();
  std::move(launched.done)({.device_seconds = 1, .signalled = true});
  ASSERT_TRUE(Comes([&] { return caller_->gate(slot).load() == 0; }));
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
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

}  // namespace
}  // namespace gemmd::server
