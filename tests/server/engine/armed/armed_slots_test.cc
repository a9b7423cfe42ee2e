// What becomes of armed slots: disarmed, out of room, or when their plan, buffers or session go.

#include <atomic>

#include "tests/server/engine/armed_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

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
  std::atomic<bool> freed = false;                    // by the thread that ends the last run
  Session::Freed total;
  ASSERT_TRUE(state_->sessions().End(*session_, EndCause::kClosed, [&](Session::Freed what) {
    total = what;
    freed = true;
  }));
  EXPECT_EQ(caller_->header().state, GEMMD_ARMED_ENDED);
  EXPECT_TRUE(region_->List().empty());
  EXPECT_EQ(metrics_.ArmedSlots().Value(), 0);
  EXPECT_FALSE(freed);  // one run is under way
  // A ring that the poller took before the end may be launched only now.
  EXPECT_TRUE(ComesAsProgramsEnd([&] { return freed.load(); }));
  EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN);
  EXPECT_NE(caller_->Wait(queued), 0u);
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
  EXPECT_EQ(state_->armed().RegionOf(*other, GEMMD_ARMED_MAX_SLOTS + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*state_->armed().RegionOf(*other, 17))->slots(), 32);
}

TEST_F(ArmedTest, SlotsRunOut) {
  for (int i = 0; i < 64; ++i) EXPECT_EQ(Slot(), i);
  EXPECT_EQ(ReasonOf(Arm().status()), "ARMED_LIMIT");
  ASSERT_TRUE(region_->Disarm({13}).ok());
  EXPECT_EQ(Slot(), 13);
}

class ManySlotsTest : public ArmedTest {
 protected:
  static constexpr int kSlots = 2064;
  ManySlotsTest() : ArmedTest({}, /*signals=*/false, kSlots) {}
};

TEST_F(ManySlotsTest, AllAreArmedAndRungAndGivenAgain) {
  for (int i = 0; i < kSlots; ++i) ASSERT_EQ(Slot(), i);
  EXPECT_EQ(ReasonOf(Arm().status()), "ARMED_LIMIT");
  for (const int slot : {0, 1023, 1024, 1500, kSlots - 1}) {
    caller_->Ring(slot);
    ASSERT_TRUE(Launched(1)) << slot;
    device_.CompleteOne();
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_RAN) << slot;
  }
  ASSERT_TRUE(region_->Disarm({2000, 3, 1700}).ok());
  EXPECT_EQ(region_->List().size(), static_cast<size_t>(kSlots - 3));
  for (const int slot : {3, 1700, 2000}) EXPECT_EQ(Slot(), slot);
  ASSERT_TRUE(session_->DeletePlan(plan_).ok());
  caller_->Ring(1900);
  EXPECT_STREQ(Refused(1900).reason, "PLAN_GONE");
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
