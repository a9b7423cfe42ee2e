// Session::Execute in its forms, and plans.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "tests/client/cpp/eventually.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

class ExecuteTest : public ::testing::Test {
 protected:
  // Writes `text` and reads it back.
  OpList Echo(const std::string& text) {
    const Tensor tensor = buffer_.View(DType::kI8, {static_cast<int64_t>(text.size())});
    OpList ops;
    ops.Add(Write{tensor, text}).Add(Read{tensor});
    return ops;
  }

  FakeDaemon daemon_;
  Client client_ = ConnectTo(daemon_);
  Session session_ = *client_.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  Buffer buffer_ = *session_.CreateBuffer({.dtype = DType::kF32, .shape = {8, 8}});
};

TEST_F(ExecuteTest, ReturnsOutputsAndReport) {
  const absl::StatusOr<Result> result = session_.Execute(Echo("hello"));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outputs(), 1);
  EXPECT_EQ(result->output(0), "hello");
  EXPECT_EQ(result->Output<char>(0).size(), 5);
  EXPECT_EQ(result->report().ops(0).kernel(), "fake");
  EXPECT_FALSE(result->replayed());
}

TEST_F(ExecuteTest, DeterministicProgramsPlansAndQueuesSaySo) {
  ASSERT_TRUE(session_.Execute(Echo("x")).ok());
  ASSERT_TRUE(session_.CreatePlan(Echo("x")).ok());
  ASSERT_TRUE(session_.OpenQueue().ok());
  EXPECT_EQ(daemon_.Calls("deterministic"), 0);
  ASSERT_TRUE(session_.Execute(Echo("x"), {.deterministic = true}).ok());
  EXPECT_EQ(daemon_.Calls("deterministic"), 1);
  ASSERT_TRUE(session_.ExecuteAsync(Echo("x"), {.deterministic = true}).get().ok());
  EXPECT_EQ(daemon_.Calls("deterministic"), 2);
  ASSERT_TRUE(session_.CreatePlan(Echo("x"), {.deterministic = true}).ok());
  EXPECT_EQ(daemon_.Calls("deterministic"), 3);
  ASSERT_TRUE(session_.OpenQueue({.deterministic = true}).ok());
  EXPECT_EQ(daemon_.Calls("deterministic"), 4);
}

TEST_F(ExecuteTest, OutputsAreCopiedWhereTheyAreWanted) {
  client::Buffer large = *session_.CreateBuffer({.dtype = DType::kI8, .shape = {500000}});
  std::string data(500000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7919 >> 3);
  OpList ops;
  ops.Add(Write{large.tensor(), data}).Add(Read{large.tensor()});
  const absl::StatusOr<Result> result = session_.Execute(ops);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output_bytes(0), data.size());
  std::string target(data.size(), '\0');
  ASSERT_TRUE(result->CopyOutput(0, absl::MakeSpan(target)).ok());
  EXPECT_TRUE(target == data);
  EXPECT_TRUE(result->output(0) == data);
  EXPECT_EQ(result->output(0).data(), result->output(0).data());  // put together once
  target.pop_back();
  EXPECT_THAT(std::string(result->CopyOutput(0, absl::MakeSpan(target)).message()),
              ::testing::HasSubstr("output 0 has 500000 bytes, the target 499999"));
  for (const int none : {-1, 1}) {
    EXPECT_EQ(result->CopyOutput(none, absl::MakeSpan(target)).code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST_F(ExecuteTest, AListMayChangeWhileItIsSent) {
  client::Buffer large = *session_.CreateBuffer({.dtype = DType::kI8, .shape = {500000}});
  OpList ops;
  std::vector<std::future<absl::StatusOr<Result>>> runs;
  for (const char letter : {'a', 'b', 'c'}) {
    ops.Clear();
    ops.Add(Write{large.tensor(), std::string(500000, letter)}).Add(Read{large.tensor()});
    runs.push_back(session_.ExecuteAsync(ops));
    ops.Add(Read{large.tensor()});  // not of the run that is under way
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const absl::StatusOr<Result> result = runs[i].get();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->outputs(), 1);
    EXPECT_TRUE(result->output(0) == std::string(500000, static_cast<char>('a' + i)));
  }
}

TEST_F(ExecuteTest, InvalidOpsAreNotSent) {
  OpList ops;
  ops.Add(Read{buffer_.tensor().Slice(0, 5, 9)});
  EXPECT_EQ(session_.Execute(ops).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session_.ExecuteAsync(ops).get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(daemon_.Calls("Execute"), 0);
}

TEST_F(ExecuteTest, LostAnswerIsAskedForAgainAndTheProgramRunsOnce) {
  daemon_.Fail("Execute", Torn(), /*times=*/2, /*after=*/true);
  const absl::StatusOr<Result> result = session_.Execute(Echo("once"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output(0), "once");
  EXPECT_TRUE(result->replayed());
  EXPECT_EQ(daemon_.Calls("Execute"), 3);
  EXPECT_EQ(daemon_.ProgramsRun(), 1);
}

TEST_F(ExecuteTest, EachCallHasAnIdOfItsOwn) {
  ASSERT_TRUE(session_.Execute(Echo("a")).ok());
  ASSERT_TRUE(session_.Execute(Echo("a")).ok());
  EXPECT_EQ(daemon_.ProgramsRun(), 2);
}

TEST_F(ExecuteTest, CallersOwnOpIdReplays) {
  const ExecuteOptions options = {.op_id = "step-17"};
  ASSERT_TRUE(session_.Execute(Echo("a"), options).ok());
  const absl::StatusOr<Result> again = session_.Execute(Echo("a"), options);
  EXPECT_TRUE(again->replayed());
  EXPECT_EQ(daemon_.ProgramsRun(), 1);
}

TEST_F(ExecuteTest, RefusalsAreNotTriedAgain) {
  daemon_.Fail("Execute", Signed(absl::ResourceExhaustedError("queue full"), "QUEUE_LIMIT"));
  EXPECT_EQ(ReasonOf(session_.Execute(Echo("a")).status()), "QUEUE_LIMIT");
  EXPECT_EQ(daemon_.Calls("Execute"), 1);
}

TEST_F(ExecuteTest, DeadlineEndsAStalledExecute) {
  const ExecuteOptions options = {.call = {.timeout = absl::Milliseconds(60)}};
  daemon_.Stall("Execute", 2);
  EXPECT_EQ(session_.Execute(Echo("a"), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(session_.ExecuteAsync(Echo("a"), options).get().status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ExecuteTest, OneListRunsFromSeveralThreads) {
  const OpList ops = Echo("shared");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) EXPECT_EQ(session_.Execute(ops)->output(0), "shared");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon_.ProgramsRun(), 80);
}

TEST_F(ExecuteTest, AsyncRunsAndRetriesLikeTheWaitingOne) {
  daemon_.Fail("Execute", Torn(), /*times=*/2, /*after=*/true);
  std::future<absl::StatusOr<Result>> future = session_.ExecuteAsync(Echo("later"));
  const absl::StatusOr<Result> result = future.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output(0), "later");
  EXPECT_EQ(daemon_.ProgramsRun(), 1);
  daemon_.Fail("Execute", Torn(), /*times=*/10);
  EXPECT_EQ(session_.ExecuteAsync(Echo("never")).get().status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ExecuteTest, PlanRunsWithOtherBuffersAndInputs) {
  const absl::StatusOr<Plan> plan = session_.CreatePlan(Echo("abc"), {.label = "echo"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->info().steps_size(), 2);
  EXPECT_EQ(plan->Run()->output(0), "abc");
  EXPECT_EQ(plan->Run({.inputs = {"xyz"}})->output(0), "xyz");
  const Buffer other = *session_.CreateBuffer({.size_bytes = 8});
  EXPECT_EQ(plan->Run({.rebind = {{buffer_.id(), other.id()}}, .inputs = {"new"}})->output(0),
            "new");
  EXPECT_EQ(daemon_.Bytes(other.id().bytes()).substr(0, 3), "new");
  EXPECT_EQ(daemon_.Bytes(buffer_.id().bytes()).substr(0, 3), "xyz");
}

TEST_F(ExecuteTest, PlanRunWithALostAnswerRunsOnce) {
  const Plan plan = *session_.CreatePlan(Echo("abc"));
  daemon_.Fail("RunPlan", Torn(), /*times=*/1, /*after=*/true);
  EXPECT_TRUE(plan.Run()->replayed());
  EXPECT_EQ(daemon_.ProgramsRun(), 1);
}

TEST_F(ExecuteTest, PlanIsDeletedWithItsObjectUnlessReleased) {
  { const Plan plan = *session_.CreatePlan(Echo("abc")); }
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Plans(), 0);
  const Handle kept = session_.CreatePlan(Echo("abc"))->Release();
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Plans(), 1);
  EXPECT_TRUE(session_.DeletePlan(kept).ok());
  Plan plan = *session_.CreatePlan(Echo("abc"));
  EXPECT_TRUE(plan.Delete().ok());
  EXPECT_EQ(daemon_.Plans(), 0);
  EXPECT_EQ(session_.background_errors(), 0);
}

TEST_F(ExecuteTest, CreatePlanIsNotTriedAgainAfterABreak) {
  daemon_.Fail("CreatePlan", Torn(), /*times=*/1, /*after=*/true);
  EXPECT_EQ(session_.CreatePlan(Echo("abc")).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon_.Calls("CreatePlan"), 1);
}

}  // namespace
}  // namespace gemmd::client
