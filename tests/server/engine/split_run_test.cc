// A program on two devices: its parts in their lanes, in which order, and what becomes of them when
// one fails or is cancelled. With marks, as on GPUs, and without.

#include "server/engine/scheduling/split_run.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fault.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/run.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using kernels::CopyOp;
using kernels::FillOp;
using kernels::Op;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SplitRunTest : public StateTest, public testing::WithParamInterface<bool> {
 protected:
  SplitRunTest()
      : session_(Open(*red_)),
        near_(AddBuffer(*session_)),
        near_too_(AddBuffer(*session_)),
        far_(AddBuffer(*session_, 1024, 1)),
        far_too_(AddBuffer(*session_, 1024, 1)) {
    device_.marks = other_device_.marks = GetParam();
  }
  bool marks() const { return GetParam(); }

  SessionUse Use() { return *state_->sessions().Use(*red_, ToBytes(session_->handle())); }
  kernels::TensorRef At(const Handle& handle) {
    if (!slots_) slots_.emplace(*session_);
    kernels::TensorRef tensor;
    tensor.slot = *slots_->Resolve(handle);
    tensor.shape = kernels::MakeDims({4, 4});
    tensor.strides = kernels::MakeDims({4, 1});
    return tensor;
  }
  // Near works for far, which then works for near.
  std::vector<Op> ThereAndBack() {
    return {FillOp{At(near_), 1}, CopyOp{At(near_), At(far_)}, CopyOp{At(far_), At(near_too_)}};
  }
  absl::StatusOr<RunRequest> Compile(const std::vector<Op>& ops) {
    auto run = CompileRun(Use(), ops, *slots_, {});
    slots_.reset();
    return run;
  }
  RunTicket Submit(const std::vector<Op>& ops, absl::Time deadline = absl::InfiniteFuture()) {
    auto run = Compile(ops);
    EXPECT_TRUE(run.ok()) << run.status();
    run->deadline = deadline;
    return server::Run(*std::move(run), [this](std::shared_ptr<const Outcome> outcome, bool) {
      outcomes_.push_back(std::move(outcome));
    });
  }
  void CompleteAll() {
    while (device_.CompleteOne() || other_device_.CompleteOne()) {
    }
  }

  std::shared_ptr<Session> session_;
  Handle near_, near_too_, far_, far_too_;
  std::optional<SlotTable> slots_;
  std::vector<std::shared_ptr<const Outcome>> outcomes_;
};

INSTANTIATE_TEST_SUITE_P(, SplitRunTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "ByMarks" : "ByEnds"; });

TEST_P(SplitRunTest, WhatSharesNothingRunsAtOnceAndIsAnsweredOnce) {
  Submit({FillOp{At(near_), 1}, FillOp{At(far_), 2}, FillOp{At(near_too_), 3}});
  EXPECT_EQ(device_.pending(), 1);
  EXPECT_EQ(other_device_.pending(), 1);
  device_.CompleteOne(3e-3);
  EXPECT_THAT(outcomes_, IsEmpty());
  other_device_.CompleteOne(1e-3);
  ASSERT_THAT(outcomes_, SizeIs(1));
  const Outcome& outcome = *outcomes_[0];
  EXPECT_TRUE(outcome.result.status.ok()) << outcome.result.status;
  EXPECT_EQ(outcome.device, "fake:0,fake:1");
  EXPECT_THAT(outcome.op_devices, ElementsAre("fake:0", "fake:1", "fake:0"));
  EXPECT_EQ(outcome.program->steps().size(), 3u);
  EXPECT_DOUBLE_EQ(outcome.result.used_seconds(), 4e-3);
  EXPECT_GE(outcome.result.launch.device_seconds, 3e-3);
}

TEST_P(SplitRunTest, APartIsLaunchedWhenWhatItWaitsForIsLaunchedOrHasEnded) {
  Submit(ThereAndBack());
  if (marks()) {
    // All at once: the devices wait for each other's marks.
    EXPECT_EQ(device_.pending(), 2);
    ASSERT_EQ(other_device_.pending(), 1);
    const FakeDevice::Launched first = device_.TakeOne();
    const FakeDevice::Launched middle = other_device_.TakeOne();
    const FakeDevice::Launched last = device_.TakeOne();
    EXPECT_THAT(first.bindings.after, IsEmpty());
    ASSERT_THAT(first.bindings.marks, SizeIs(1));
    ASSERT_THAT(middle.bindings.marks, SizeIs(1));
    EXPECT_THAT(last.bindings.marks, IsEmpty());  // nobody waits for it
    EXPECT_THAT(middle.bindings.after, ElementsAre(first.bindings.marks[0].mark));
    EXPECT_THAT(last.bindings.after, ElementsAre(middle.bindings.marks[0].mark));
    EXPECT_NE(first.bindings.marks[0].mark, nullptr);
    for (const FakeDevice::Launched* one : {&first, &middle, &last}) {
      std::move(const_cast<FakeDevice::Launched*>(one)->done)({.started = absl::Now()});
    }
  } else {
    for (FakeDevice* device : {&device_, &other_device_, &device_}) {
      EXPECT_EQ(device_.pending() + other_device_.pending(), 1);
      EXPECT_THAT(outcomes_, IsEmpty());
      ASSERT_TRUE(device->CompleteOne());
    }
  }
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_TRUE(outcomes_[0]->result.status.ok()) << outcomes_[0]->result.status;
  EXPECT_EQ(device_.total(), 2);
  EXPECT_EQ(other_device_.total(), 1);
}

// What the far device waits for is the near one's first op alone, and it says so.
TEST_P(SplitRunTest, AFewOpsBehindWhatIsAwaitedAreLaunchedWithItWhereThereAreMarks) {
  Submit({FillOp{At(near_), 1}, FillOp{At(near_too_), 2}, CopyOp{At(near_), At(far_)}});
  ASSERT_GE(device_.pending(), 1);
  if (marks()) {
    EXPECT_EQ(device_.pending(), 1);
    EXPECT_EQ(other_device_.pending(), 1);
    const FakeDevice::Launched first = device_.TakeOne();
    EXPECT_EQ(first.program->steps().size(), 2u);
    ASSERT_THAT(first.bindings.marks, SizeIs(1));
    EXPECT_EQ(first.bindings.marks[0].op, 0);
    std::move(const_cast<FakeDevice::Launched&>(first).done)({.started = absl::Now()});
  }
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_TRUE(outcomes_[0]->result.status.ok()) << outcomes_[0]->result.status;
  EXPECT_EQ(device_.total(), marks() ? 1 : 2);
  EXPECT_THAT(outcomes_[0]->op_devices, ElementsAre("fake:0", "fake:0", "fake:1"));
}

// Each waits for the op that it needs, by a mark of its own.
TEST_P(SplitRunTest, APartThatTwoWaitForIsLaunchedOnceWhereThereAreMarks) {
  Submit({FillOp{At(near_), 1}, FillOp{At(near_too_), 2}, CopyOp{At(near_), At(far_)},
          CopyOp{At(near_too_), At(far_too_)}});
  if (marks()) {
    ASSERT_EQ(device_.pending(), 1);
    ASSERT_EQ(other_device_.pending(), 2);
    const FakeDevice::Launched both = device_.TakeOne();
    const FakeDevice::Launched one = other_device_.TakeOne();
    const FakeDevice::Launched other = other_device_.TakeOne();
    EXPECT_EQ(both.program->steps().size(), 2u);
    ASSERT_THAT(both.bindings.marks, SizeIs(2));
    EXPECT_EQ(both.bindings.marks[0].op, 0);
    EXPECT_EQ(both.bindings.marks[1].op, 1);
    EXPECT_THAT(one.bindings.after, ElementsAre(both.bindings.marks[0].mark));
    EXPECT_THAT(other.bindings.after, ElementsAre(both.bindings.marks[1].mark));
    for (const FakeDevice::Launched* launched : {&both, &one, &other}) {
      std::move(const_cast<FakeDevice::Launched*>(launched)->done)({.started = absl::Now()});
    }
  }
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_TRUE(outcomes_[0]->result.status.ok()) << outcomes_[0]->result.status;
  EXPECT_EQ(device_.total(), marks() ? 1 : 2);
  EXPECT_EQ(other_device_.total(), 2);
}

TEST_P(SplitRunTest, TheFirstFailureIsTheAnswerAndNothingMoreIsLaunched) {
  Submit(ThereAndBack());
  device_.CompleteOne(-1, absl::InternalError("smoke"));
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(1));
  const absl::Status& status = outcomes_[0]->result.status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "part 0 of 3, on fake:0: smoke");
  EXPECT_EQ(other_device_.total(), marks() ? 1 : 0);
}

TEST_P(SplitRunTest, AFenceAnswersAllOfIt) {
  Submit(ThereAndBack());
  other_device_.Fault(kernels::DeviceFault("smoke"));
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_EQ(ReasonOf(outcomes_[0]->result.status), "DEVICE_FENCED");
  EXPECT_EQ(
      Compile({FillOp{At(near_), 1}, CopyOp{At(far_), At(near_too_)}, FillOp{At(far_), 1}}).ok(),
      false);
}

// As many as the look-ahead lets through are in front of it on each device.
TEST_P(SplitRunTest, ItIsCancelledWhileAllOfItWaits) {
  for (int i = 0; i < 4; ++i) {
    Submit({FillOp{At(near_), 1}});
    Submit({FillOp{At(far_), 1}});
  }
  const RunTicket ticket = Submit({FillOp{At(near_), 1}, FillOp{At(far_), 2}});
  ticket.Cancel(absl::CancelledError("not wanted"));
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_EQ(outcomes_[0]->result.status.code(), absl::StatusCode::kCancelled);
  ticket.Cancel(absl::CancelledError("again"));
  CompleteAll();
  EXPECT_THAT(outcomes_, SizeIs(9));
  EXPECT_EQ(device_.total(), 4);
  EXPECT_EQ(other_device_.total(), 4);
}

TEST_P(SplitRunTest, ItIsNotCancelledOnceAPartHasBegun) {
  for (int i = 0; i < 4; ++i) Submit({FillOp{At(far_), 1}});
  const RunTicket ticket = Submit({FillOp{At(near_), 1}, FillOp{At(far_), 2}});
  EXPECT_EQ(device_.total(), 1);
  ticket.Cancel(absl::CancelledError("too late"));
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(5));
  for (const auto& outcome : outcomes_) EXPECT_TRUE(outcome->result.status.ok());
}

TEST_P(SplitRunTest, ADeadlineThatOneDeviceCannotKeepIsToldAtOnce) {
  for (int i = 0; i < 20; ++i) Submit({FillOp{At(far_), 1}});
  const size_t before = outcomes_.size();
  Submit({FillOp{At(far_), 2}, FillOp{At(near_), 1}}, clock_.Now() + absl::Milliseconds(5));
  ASSERT_THAT(outcomes_, SizeIs(before + 1));
  EXPECT_EQ(outcomes_.back()->result.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(outcomes_.back()->result.status.message()),
              HasSubstr("part 0 of 2, on fake:1: needs about"));
  EXPECT_EQ(device_.total(), 0);
  CompleteAll();
}

TEST_P(SplitRunTest, ItsSessionsEndAnswersItAndWaitsForWhatRuns) {
  Submit(ThereAndBack());
  for (int device = 0; device < 2; ++device) {
    state_->devices()[device]->CancelSession(session_->key(), absl::CancelledError("gone"));
  }
  CompleteAll();
  EXPECT_THAT(outcomes_, SizeIs(1));
}

TEST_P(SplitRunTest, ItsBuffersAreHeldUntilTheLastPartHasRun) {
  Submit({FillOp{At(near_), 1}, FillOp{At(far_), 2}});
  ASSERT_TRUE(session_->DeleteBuffers({&near_, 1}).ok());
  ASSERT_TRUE(session_->DeleteBuffers({&far_, 1}).ok());
  device_.CompleteOne();
  EXPECT_EQ(used_bytes(0), 2048);
  other_device_.CompleteOne();
  EXPECT_EQ(used_bytes(0), 1024);
  EXPECT_EQ(used_bytes(1), 1024);
}

// Two programs whose lanes meet them in different orders.
TEST_P(SplitRunTest, ManyProgramsOnBothEnd) {
  for (int i = 0; i < 50; ++i) {
    Submit(ThereAndBack());
    Submit({FillOp{At(far_too_), 1}, CopyOp{At(far_too_), At(near_)}, CopyOp{At(near_), At(far_)}});
  }
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(100));
  for (const auto& outcome : outcomes_) EXPECT_TRUE(outcome->result.status.ok());
}

TEST_P(SplitRunTest, ItIsChargedToEachDevice) {
  Submit({FillOp{At(near_), 1}, FillOp{At(far_), 2}});
  device_.CompleteOne(2e-3);
  other_device_.CompleteOne(3e-3);
  EXPECT_DOUBLE_EQ(state_->devices()[0]->stats().busy_seconds, 2e-3);
  EXPECT_DOUBLE_EQ(state_->devices()[1]->stats().busy_seconds, 3e-3);
  EXPECT_EQ(red_->usage().queued_device_time, absl::ZeroDuration());
}

TEST_P(SplitRunTest, SoManyPartsAreOneProgramAndNoMore) {
  std::vector<Op> ops;
  while (ops.size() < 1000) {
    ops.push_back(CopyOp{At(near_), At(far_)});
    ops.push_back(CopyOp{At(far_), At(near_)});
  }
  Submit(ops);
  CompleteAll();
  ASSERT_THAT(outcomes_, SizeIs(1));
  EXPECT_TRUE(outcomes_[0]->result.status.ok());
  ops.clear();
  while (ops.size() < 1100) {
    ops.push_back(CopyOp{At(near_), At(far_)});
    ops.push_back(CopyOp{At(far_), At(near_)});
  }
  const absl::Status refused = Compile(ops).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit 1024; send it as several"));
}

}  // namespace
}  // namespace gemmd::server
