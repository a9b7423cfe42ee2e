#include "server/engine/scheduling/run.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

kernels::TensorRef F32(int slot, int64_t elements, int64_t offset_bytes = 0) {
  kernels::TensorRef tensor;
  tensor.slot = slot;
  tensor.offset_bytes = offset_bytes;
  tensor.shape = kernels::MakeDims({elements});
  tensor.strides = kernels::MakeDims({1});
  return tensor;
}

class RunTest : public StateTest {
 protected:
  explicit RunTest(Limits limits = {}) : StateTest(limits) {
    session_ = Open(*red_);
    a_ = AddBuffer(*session_);
    b_ = AddBuffer(*session_);
  }

  SessionUse Use() { return *state_->sessions().Use(*red_, ToBytes(session_->handle())); }

  // Copies a_ to b_.
  absl::StatusOr<RunRequest> Copy() {
    SlotTable slots(*session_);
    const int a = *slots.Resolve(a_), b = *slots.Resolve(b_);
    const std::vector<kernels::Op> ops = {kernels::CopyOp{F32(a, 8), F32(b, 8)}};
    return CompileRun(Use(), ops, slots, {});
  }
  absl::StatusOr<std::shared_ptr<const Plan>> CopyPlan() {
    SlotTable slots(*session_);
    const int a = *slots.Resolve(a_), b = *slots.Resolve(b_);
    const std::vector<kernels::Op> ops = {kernels::CopyOp{F32(a, 8), F32(b, 8, 64)}};
    return CompilePlan(*session_, ops, slots, {}, "copy");
  }
  OutcomeDone Done() {
    return [this](std::shared_ptr<const Outcome> outcome, bool replayed) {
      ++answers_;
      status_ = outcome->result.status;
      replayed_ = replayed;
    };
  }

  std::shared_ptr<Session> session_;
  Handle a_, b_;
  int answers_ = 0;
  bool replayed_ = false;
  absl::Status status_;
};

TEST_F(RunTest, RunsAndAnswersOnce) {
  auto run = Copy();
  ASSERT_TRUE(run.ok()) << run.status();
  server::Run(*std::move(run), Done());
  EXPECT_EQ(session_->stats().queued_programs, 1);
  EXPECT_EQ(answers_, 0);
  device_.CompleteAll();
  EXPECT_EQ(answers_, 1);
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(session_->stats().queued_programs, 0);
  EXPECT_DOUBLE_EQ(session_->stats().device_seconds, 1e-3);
}

TEST_F(RunTest, OneBufferIsOneSlotHoweverItIsNamed) {
  SlotTable slots(*session_);
  EXPECT_EQ(*slots.Resolve(a_), 0);
  EXPECT_EQ(*slots.Resolve(b_), 1);
  EXPECT_EQ(*slots.Resolve(a_), 0);
  BufferRef found = *session_->FindBuffer(a_);
  found.found = true;
  const Handle alias = *session_->AddBuffer(found);
  EXPECT_EQ(*slots.Resolve(alias), 0);
  EXPECT_EQ(slots.Resolve(NewHandle()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunTest, ProgramsKeepBuffersThatAreDeletedUnderThem) {
  server::Run(*Copy(), Done());
  const std::vector<Handle> both = {a_, b_};
  EXPECT_TRUE(session_->DeleteBuffers(both).ok());
  EXPECT_EQ(used_bytes(), 2048);
  device_.CompleteAll();
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(RunTest, ASessionThatEndsFreesWhatItsRunningProgramUsesAfterwards) {
  server::Run(*Copy(), Done());
  bool freed = false;
  state_->sessions().End(*session_, EndCause::kClosed, [&](Session::Freed) { freed = true; });
  EXPECT_FALSE(freed);
  device_.CompleteAll();
  EXPECT_TRUE(freed);
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(RunTest, WritingAPublishedBufferIsRefused) {
  ASSERT_TRUE(state_->published().Publish(*red_, "w", *session_->FindBuffer(b_)).ok());
  const auto refused = Copy().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "READ_ONLY");
}

TEST_F(RunTest, ARetryWithTheSameOpIdIsAnsweredFromTheFirst) {
  auto first = Copy(), second = Copy(), third = Copy();
  first->op_id = second->op_id = third->op_id = {"id"};
  server::Run(*std::move(first), Done());
  server::Run(*std::move(second), Done());  // while the first is under way
  EXPECT_EQ(device_.total(), 1);
  device_.CompleteAll();
  EXPECT_EQ(answers_, 2);
  server::Run(*std::move(third), Done());
  EXPECT_EQ(answers_, 3);
  EXPECT_TRUE(replayed_);
  EXPECT_EQ(device_.total(), 1);
}

TEST_F(RunTest, AnOpIdThatComesWithAnotherProgramIsRefused) {
  auto first = Copy(), during = Copy(), after = Copy();
  first->op_id = {"id", 1};
  during->op_id = after->op_id = {"id", 2};
  server::Run(*std::move(first), Done());
  server::Run(*std::move(during), Done());
  EXPECT_EQ(ReasonOf(status_), "OP_ID_REUSED");
  device_.CompleteAll();
  EXPECT_TRUE(status_.ok());  // the first one's
  server::Run(*std::move(after), Done());
  EXPECT_EQ(status_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(answers_, 3);
  EXPECT_EQ(device_.total(), 1);
}

TEST_F(RunTest, AFailedRunMayBeTriedAgainUnderItsOpId) {
  auto first = Copy(), second = Copy();
  first->op_id = second->op_id = {"id"};
  server::Run(*std::move(first), Done());
  device_.CompleteOne(0.1, absl::InternalError("fault"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kInternal);
  server::Run(*std::move(second), Done());
  device_.CompleteAll();
  EXPECT_EQ(device_.total(), 2);
  EXPECT_TRUE(status_.ok());
  EXPECT_FALSE(replayed_);
}

TEST_F(RunTest, ARetryWhoseFirstCallWasCancelledIsToldToTryAgain) {
  server::Run(*Copy(), Done());  // keeps the device busy
  for (int i = 0; i < 2; ++i) server::Run(*Copy(), Done());
  auto first = Copy(), retry = Copy();
  first->op_id = retry->op_id = {"id"};
  const RunTicket ticket = server::Run(*std::move(first), Done());
  absl::Status retried;
  server::Run(*std::move(retry), [&](std::shared_ptr<const Outcome> outcome, bool) {
    retried = outcome->result.status;
  });
  ticket.Cancel(absl::CancelledError("gone"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(retried.code(), absl::StatusCode::kUnavailable);
  device_.CompleteAll();
}

TEST_F(RunTest, WorkQueuedByACallThatOutlivesItsSessionIsDropped) {
  auto late = Copy();  // holds the session
  state_->sessions().End(*session_, EndCause::kClosed);
  server::Run(*std::move(late), Done());
  device_.CompleteAll();
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(RunTest, APlanRunsOnOtherBuffers) {
  auto plan = CopyPlan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Handle c = AddBuffer(*session_);
  const std::vector<Rebinding> rebind = {{b_, c}};
  auto run = BindPlan(Use(), *plan, rebind, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->buffers->leases[1], session_->FindBuffer(c)->buffer);
  server::Run(*std::move(run), Done());
  device_.CompleteAll();
  EXPECT_EQ(answers_, 1);
}

TEST_F(RunTest, APlanRefusesABufferThatIsTooSmall) {
  auto plan = CopyPlan();
  const Handle small = AddBuffer(*session_, 95);  // its view reaches to 64 + 32
  const std::vector<Rebinding> rebind = {{b_, small}};
  const auto refused = BindPlan(Use(), *plan, rebind, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("reach to 96"));
}

TEST_F(RunTest, APlanRefusesOneBufferInTwoPlacesWhenItWritesOne) {
  auto plan = CopyPlan();
  const std::vector<Rebinding> rebind = {{b_, a_}};
  EXPECT_EQ(BindPlan(Use(), *plan, rebind, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunTest, APlanRefusesUnknownPlacesAndOtherDevices) {
  auto plan = CopyPlan();
  const Handle far = AddBuffer(*session_, 1024, 1);
  const std::vector<Rebinding> unknown = {{NewHandle(), a_}}, wrong_device = {{b_, far}};
  EXPECT_EQ(BindPlan(Use(), *plan, unknown, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BindPlan(Use(), *plan, wrong_device, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RunTest, APlanWhoseBufferWasDeletedNeedsARebinding) {
  auto plan = CopyPlan();
  const Handle c = AddBuffer(*session_);
  ASSERT_TRUE(session_->DeleteBuffers({&b_, 1}).ok());
  EXPECT_EQ(BindPlan(Use(), *plan, {}, {}).status().code(), absl::StatusCode::kNotFound);
  const std::vector<Rebinding> rebind = {{b_, c}};
  EXPECT_TRUE(BindPlan(Use(), *plan, rebind, {}).ok());
}

class RunLimitTest : public RunTest {
 protected:
  RunLimitTest()
      : RunTest({.max_ops = 2,
                 .max_inline_bytes = 64,
                 .max_plans = 1,
                 .max_queued_programs = 2,
                 .max_program_time = absl::Microseconds(1500)}) {}
};

TEST_F(RunLimitTest, AProgramThatWouldHoldTheDeviceTooLongIsRefused) {
  SlotTable slots(*session_);
  const int a = *slots.Resolve(a_);
  const std::vector<kernels::Op> ops(2, kernels::FillOp{F32(a, 8), 1.0});  // 1 ms each
  EXPECT_TRUE(CompileRun(Use(), absl::MakeSpan(ops).first(1), slots, {}).ok());
  const auto refused = CompileRun(Use(), ops, slots, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "PROGRAM_LIMIT");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit 1.5ms"));
}

TEST_F(RunLimitTest, TooManyOpsAreRefused) {
  SlotTable slots(*session_);
  const int a = *slots.Resolve(a_);
  const std::vector<kernels::Op> ops(3, kernels::FillOp{F32(a, 8), 1.0});
  const auto refused = CompileRun(Use(), ops, slots, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "OPS_LIMIT");
  EXPECT_EQ(CompileRun(Use(), {}, slots, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunLimitTest, TooManyInlineBytesAreRefusedBothWays) {
  SlotTable slots(*session_);
  const int a = *slots.Resolve(a_);
  const std::vector<kernels::Op> read = {kernels::ReadOp{F32(a, 17), 0}};
  EXPECT_EQ(ReasonOf(CompileRun(Use(), read, slots, {}).status()), "INLINE_LIMIT");
  const std::vector<std::byte> data(68);
  const std::vector<kernels::Op> write = {kernels::WriteOp{F32(a, 17), 0}};
  EXPECT_EQ(ReasonOf(CompileRun(Use(), write, slots, {absl::MakeConstSpan(data)}).status()),
            "INLINE_LIMIT");
}

TEST_F(RunLimitTest, AFullQueueRefusesAndForgetsNothing) {
  server::Run(*Copy(), Done());
  server::Run(*Copy(), Done());
  server::Run(*Copy(), Done());
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(ReasonOf(status_), "QUEUE_LIMIT");
  device_.CompleteAll();
  EXPECT_EQ(answers_, 3);
  EXPECT_EQ(session_->stats().queued_programs, 0);
}

TEST_F(RunLimitTest, PlansAreCountedUntilTheyAreGone) {
  auto plan = CopyPlan();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(ReasonOf(CopyPlan().status()), "PLAN_LIMIT");
  plan->reset();
  EXPECT_TRUE(CopyPlan().ok());
}

}  // namespace
}  // namespace gemmd::server
