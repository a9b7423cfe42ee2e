// The Queue stream: order, failure and resume, windows, plans in it.

#include <atomic>

#include "absl/synchronization/notification.h"
#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Convert;
using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using client::Ticket;
using client::Write;
using ::testing::ElementsAre;

class QueueTest : public E2eTest {};

TEST_F(QueueTest, RunsInTheOrderSent) {
  // x -> 2x + 1 forty times over: any other order gives another number.
  client::Buffer x = MakeBuffer(session_, {1, 1});
  client::Buffer two = MakeBuffer(session_, {1, 1});
  client::Buffer one = MakeBuffer(session_, {1, 1});
  client::Buffer y = MakeBuffer(session_, {1, 1});
  Must(session_.Execute(
      OpList().Add(Fill{x.tensor(), 0}).Add(Fill{two.tensor(), 2}).Add(Fill{one.tensor(), 1})));
  client::Queue queue = Must(session_.OpenQueue());
  std::vector<Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    const bool even = i % 2 == 0;
    OpList ops;
    ops.Add(Matmul{.a = even ? x.tensor() : y.tensor(),
                   .b = two.tensor(),
                   .d = even ? y.tensor() : x.tensor(),
                   .c = one.tensor(),
                   .beta = 1});
    ops.Add(Read{even ? y.tensor() : x.tensor()});
    tickets.push_back(Must(queue.Submit(ops)));
  }
  float expected = 0;
  for (Ticket& ticket : tickets) {
    expected = 2 * expected + 1;
    EXPECT_THAT(FloatsOf(Must(ticket.Wait())), ElementsAre(expected));
  }
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(QueueTest, AFailureStopsWhatFollowsUntilResume) {
  client::Buffer x = MakeBuffer(session_, {1});
  client::Queue queue = Must(session_.OpenQueue());
  const auto fill = [&](double value) { return OpList().Add(Fill{x.tensor(), value}); };
  // The buffer is as large as its one element: the second batch is refused by the server.
  const client::Tensor beyond(x.id(), client::DType::kF32, {1}, 4);

  Ticket good = Must(queue.Submit(fill(1)));
  Ticket bad = Must(queue.Submit(OpList().Add(Fill{beyond, 2})));
  Ticket behind = Must(queue.Submit(fill(3)));
  Ticket behind_too = Must(queue.Submit(fill(4)));
  EXPECT_TRUE(good.Wait().ok());
  EXPECT_EQ(bad.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(behind.Wait().status().code(), absl::StatusCode::kAborted);
  const absl::Status aborted = behind_too.Wait().status();
  EXPECT_EQ(aborted.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client::ReasonOf(aborted), "EARLIER_BATCH_FAILED");

  Ticket unchanged = Must(queue.Submit(OpList().Add(Read{x.tensor()}), {.resume = true}));
  EXPECT_THAT(FloatsOf(Must(unchanged.Wait())), ElementsAre(1.0f));
  EXPECT_TRUE(Must(queue.Submit(fill(5))).Wait().ok());
  EXPECT_TRUE(queue.Close().ok());
}

// No call of its own fails, and yet its tenant was refused: who watches sees it.
TEST_F(QueueTest, ARefusedBatchIsCountedByReasonAndTenant) {
  client::Buffer x = MakeBuffer(session_, {1});
  client::Queue queue = Must(session_.OpenQueue());
  OpList ops;
  for (int i = 0; i < 5000; ++i) ops.Add(Fill{x.tensor(), 1});  // limits.max_ops is 4096
  EXPECT_EQ(client::ReasonOf(Must(queue.Submit(ops)).Wait().status()), "OPS_LIMIT");
  EXPECT_EQ(Must(queue.Submit(OpList().Add(Fill{x.tensor(), 1}))).Wait().status().code(),
            absl::StatusCode::kAborted);  // behind a refused one, and no refusal itself
  const Samples samples = daemon_.Metrics();
  EXPECT_EQ(Sum(samples, "gemmd_rejected_total", "reason=\"OPS_LIMIT\""), 1);
  EXPECT_EQ(Sum(samples, "gemmd_rejected_total"), 1);
  EXPECT_EQ(Sum(samples, "gemmd_tenant_rejected_total", "tenant=\"default\""), 1);
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(QueueTest, ManyBatchesThroughASmallWindow) {
  client::Buffer x = MakeBuffer(session_, {1});
  client::Queue queue = Must(session_.OpenQueue());
  EXPECT_EQ(queue.window_batches(), 64);
  std::atomic<int> completed{0};
  for (int i = 0; i < 2000; ++i) {
    const auto done = [&completed](const absl::StatusOr<client::Result>& result) {
      if (result.ok()) ++completed;
    };
    ASSERT_TRUE(queue.Submit(OpList().Add(Fill{x.tensor(), 1.0 * i}), done).ok());
  }
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_EQ(completed.load(), 2000);
  const client::Result last = Must(session_.Execute(OpList().Add(Read{x.tensor()})));
  EXPECT_THAT(FloatsOf(last), ElementsAre(1999.0f));
}

TEST_F(QueueTest, DrainWaitsForTheLastCallback) {
  client::Buffer x = MakeBuffer(session_, {1});
  client::Queue queue = Must(session_.OpenQueue());
  absl::Notification begun, may_end;
  bool ended = false;
  const auto done = [&](const absl::StatusOr<client::Result>&) {
    begun.Notify();
    may_end.WaitForNotification();
    ended = true;
  };
  ASSERT_TRUE(queue.Submit(OpList().Add(Fill{x.tensor(), 1}), done).ok());
  begun.WaitForNotification();
  EXPECT_EQ(queue.Drain(absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  may_end.Notify();
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_TRUE(ended);
}

TEST_F(QueueTest, ACutQueueLeavesNothing) {
  {
    client::Buffer x = MakeBuffer(session_, {512, 512});
    client::Buffer y = MakeBuffer(session_, {512, 512});
    client::Queue queue = Must(session_.OpenQueue());
    for (int i = 0; i < 50; ++i) {
      Must(queue.Submit(OpList().Add(Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()})));
    }
  }  // cut with most of them queued
  ASSERT_TRUE(session_.Close().ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon_));
}

TEST_F(QueueTest, EveryBatchReportsItsOps) {
  client::Buffer x = MakeBuffer(session_, {64, 64});
  client::Buffer y = MakeBuffer(session_, {64, 64});
  client::Buffer h = MakeBuffer(session_, {64, 64}, client::DType::kBF16);
  client::Queue queue = Must(session_.OpenQueue());
  OpList ops;
  ops.Add(Fill{x.tensor(), 1});
  ops.Add(Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
  ops.Add(Convert{y.tensor(), h.tensor()});
  const client::Result result = Must(Must(queue.Submit(ops)).Wait());
  const v1::ProgramReport& report = result.report();
  ASSERT_EQ(report.ops_size(), 3);
  EXPECT_EQ(report.device(), TestDevice());
  EXPECT_EQ(report.ops(1).op(), "matmul");
  EXPECT_FALSE(report.ops(1).kernel().empty());
  EXPECT_EQ(report.ops(1).flops(), 2.0 * 64 * 64 * 64);
  EXPECT_GT(report.ops(1).device_seconds(), 0);
  EXPECT_GE(report.device_seconds(), report.ops(1).device_seconds());
}

// The server keeps batches that come again, as it does an Execute's ops.
TEST_F(QueueTest, TheSameBatchAgainSeesWhatIsThereNow) {
  client::Buffer x = MakeBuffer(session_, {1, 1});
  client::Buffer two = MakeBuffer(session_, {1, 1});
  client::Buffer y = MakeBuffer(session_, {1, 1});
  client::Queue queue = Must(session_.OpenQueue());
  const auto run = [&](const OpList& ops, bool resume = false) {
    return Must(queue.Submit(ops, {.resume = resume})).Wait();
  };
  Must(run(OpList().Add(Fill{two.tensor(), 2})));
  OpList ops;
  ops.Add(Matmul{.a = x.tensor(), .b = two.tensor(), .d = y.tensor()}).Add(Read{y.tensor()});
  for (float value : {1, 2, 3, 4}) {
    Must(run(OpList().Add(Fill{x.tensor(), value})));
    const client::Result result = Must(run(ops));
    EXPECT_THAT(FloatsOf(result), ElementsAre(2 * value));
    ASSERT_EQ(result.report().ops_size(), 2);
    EXPECT_EQ(result.report().ops(0).op(), "matmul");
  }
  // With data of its own each time, which is no part of what is kept.
  for (float value : {5, 6, 7, 8}) {
    OpList writing;
    writing.Add(Write{x.tensor(), std::string(reinterpret_cast<const char*>(&value), 4)});
    writing.Add(Read{x.tensor()});
    EXPECT_THAT(FloatsOf(Must(run(writing))), ElementsAre(value));
  }
  EXPECT_THAT(FloatsOf(Must(session_.Execute(ops))), ElementsAre(16.0f));  // by either way
  ASSERT_TRUE(two.Delete().ok());
  const absl::Status gone = run(ops).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), ::testing::HasSubstr("ops[0].matmul.b"));
  EXPECT_EQ(client::ReasonOf(run(ops).status()), "EARLIER_BATCH_FAILED");
  EXPECT_TRUE(run(OpList().Add(Fill{x.tensor(), 9}), /*resume=*/true).ok());
  EXPECT_TRUE(queue.Close().ok());
}

// The session's own, and one more.
TEST(StreamLimitTest, AnEndedStreamIsOfTheLimitNoMore) {
  Daemon daemon({.config = "tenants { name: \"default\" limits { max_streams: 2 } }"});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  client::Buffer x = MakeBuffer(session, {1});
  std::string data = Floats({7});
  const client::TransferOptions by_stream = {.route = client::Route::kGrpc};
  for (int i = 0; i < 200; ++i) {
    client::Queue queue = Must(session.OpenQueue());
    EXPECT_EQ(client::ReasonOf(x.Upload(data, 0, by_stream).status()), "STREAM_LIMIT");
    Must(Must(queue.Submit(OpList().Add(Fill{x.tensor(), 1}))).Wait());
    ASSERT_TRUE(queue.Close().ok());
    Must(x.Upload(data, 0, by_stream));
    Must(x.Download(absl::MakeSpan(data), 0, by_stream));
  }
}

class PlanTest : public E2eTest {};

TEST_F(PlanTest, RunsAgainWithOtherDataAndBuffers) {
  client::Buffer x = MakeBuffer(session_, {1, 2});
  client::Buffer w = MakeBuffer(session_, {1, 2});
  client::Buffer w2 = MakeBuffer(session_, {1, 2});
  client::Buffer y = MakeBuffer(session_, {1, 1});
  Must(session_.Execute(
      OpList().Add(Write{w.tensor(), Floats({10, 1})}).Add(Write{w2.tensor(), Floats({100, 1})})));
  OpList ops;
  const std::string defaults = Floats({1, 2});
  ops.Add(Write{x.tensor(), defaults});
  ops.Add(Matmul{.a = x.tensor(), .b = w.tensor(), .d = y.tensor()});
  ops.Add(Read{y.tensor()});
  client::Plan plan = Must(session_.CreatePlan(ops));
  EXPECT_THAT(FloatsOf(Must(plan.Run())), ElementsAre(12.0f));
  const std::string other = Floats({3, 4});
  EXPECT_THAT(FloatsOf(Must(plan.Run({.inputs = {other}}))), ElementsAre(34.0f));
  EXPECT_THAT(FloatsOf(Must(plan.Run({.rebind = {{w.id(), w2.id()}}}))), ElementsAre(102.0f));
  // The plan itself is unchanged by a run.
  EXPECT_THAT(FloatsOf(Must(plan.Run())), ElementsAre(12.0f));
  client::Queue queue = Must(session_.OpenQueue());
  EXPECT_THAT(FloatsOf(Must(Must(queue.Submit(plan, {.inputs = {other}})).Wait())),
              ElementsAre(34.0f));
}

TEST_F(PlanTest, ASmallerBufferIsRefused) {
  client::Buffer x = MakeBuffer(session_, {8});
  client::Buffer small = MakeBuffer(session_, {7});
  client::Plan plan = Must(session_.CreatePlan(OpList().Add(Fill{x.tensor(), 1})));
  const auto run = plan.Run({.rebind = {{x.id(), small.id()}}});
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(plan.Run().ok());
}

TEST_F(PlanTest, ADeletedBufferMustBeRebound) {
  client::Buffer x = MakeBuffer(session_, {1});
  client::Buffer x2 = MakeBuffer(session_, {1});
  client::Buffer y = MakeBuffer(session_, {1});
  Must(session_.Execute(OpList().Add(Fill{x2.tensor(), 5})));
  client::Plan plan = Must(session_.CreatePlan(
      OpList().Add(client::Copy{x.tensor(), y.tensor()}).Add(Read{y.tensor()})));
  const client::Handle deleted = x.id();
  ASSERT_TRUE(x.Delete().ok());
  EXPECT_EQ(plan.Run().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(FloatsOf(Must(plan.Run({.rebind = {{deleted, x2.id()}}}))), ElementsAre(5.0f));
}

}  // namespace
}  // namespace gemmd::e2e
