#include "client/cpp/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/client/cpp/eventually.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;

class QueueTest : public ::testing::Test {
 protected:
  OpList Echo(const std::string& text) {
    const Tensor tensor = buffer_.View(DType::kI8, {static_cast<int64_t>(text.size())});
    OpList ops;
    ops.Add(Write{tensor, text}).Add(Read{tensor});
    return ops;
  }

  FakeDaemon daemon_;  // a window of 4 batches and 1 MiB
  Client client_ = ConnectTo(daemon_);
  Session session_ = *client_.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  Buffer buffer_ = *session_.CreateBuffer({.size_bytes = 2 << 20});
  Queue queue_ = *session_.OpenQueue();
};

TEST_F(QueueTest, KnowsTheWindowItWasGiven) {
  EXPECT_EQ(queue_.window_batches(), 4);
  EXPECT_EQ(queue_.window_bytes(), 1 << 20);
  EXPECT_EQ(queue_.device(), "cpu:0");
}

TEST_F(QueueTest, ResultsComeBackToTheirTickets) {
  std::vector<Ticket> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(*queue_.Submit(Echo("batch " + std::to_string(i))));
  for (int i = 0; i < 100; ++i) {
    const absl::StatusOr<Result> result = tickets[i].Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output(0), "batch " + std::to_string(i));
    EXPECT_EQ(tickets[i].sequence(), i + 1);
  }
  EXPECT_EQ(tickets[0].Wait().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(queue_.Close().ok());
}

// How many batches came in each message, of 64 submitted at once; and again, as long as `enough`
// does not hold, for a minute at most.
std::vector<int> MessagesOf(const FakeDaemon::Options& served, const QueueOptions& options,
                            const std::function<bool(const std::vector<int>&)>& enough) {
  FakeDaemon daemon(served);
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  Buffer buffer = *session.CreateBuffer({.size_bytes = 16});
  Queue queue = *session.OpenQueue(options);
  std::vector<Ticket> tickets;
  const absl::Time end = absl::Now() + absl::Minutes(1);
  do {
    for (int i = 0; i < 64; ++i) {
      const std::string text(1 + tickets.size() % 9, 'x');
      const Tensor tensor = buffer.View(DType::kI8, {static_cast<int64_t>(text.size())});
      tickets.push_back(*queue.Submit(OpList().Add(Write{tensor, text}).Add(Read{tensor})));
    }
    EXPECT_TRUE(queue.Drain().ok());
  } while (!enough(daemon.QueueMessages()) && absl::Now() < end);
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(tickets[i].Wait()->output(0).size(), 1 + i % 9);
  }
  EXPECT_TRUE(queue.Close().ok());
  const std::vector<int> messages = daemon.QueueMessages();
  EXPECT_EQ(std::accumulate(messages.begin(), messages.end(), size_t{0}), tickets.size());
  return messages;
}

bool AnyHasMore(const std::vector<int>& messages) {
  return std::any_of(messages.begin(), messages.end(), [](int batches) { return batches > 1; });
}

TEST(QueueGatheringTest, WhatComesDuringAWriteGoesInOneMessage) {
  EXPECT_THAT(MessagesOf({.window_batches = 64, .batches_per_message = 64}, {}, AnyHasMore),
              Contains(Gt(1)));
}

TEST(QueueGatheringTest, NoMoreThanTheServerTakes) {
  EXPECT_THAT(MessagesOf({.window_batches = 64, .batches_per_message = 2}, {}, AnyHasMore),
              AllOf(Contains(2), Each(Le(2))));
}

TEST(QueueGatheringTest, AServerThatTakesOneGetsOne) {
  EXPECT_THAT(MessagesOf({.window_batches = 64}, {}, [](const auto&) { return true; }), Each(1));
}

TEST(QueueGatheringTest, NothingIsGatheredWhenItIsNotWanted) {
  EXPECT_THAT(MessagesOf({.window_batches = 64, .batches_per_message = 64}, {.gather = false},
                         [](const auto&) { return true; }),
              Each(1));
}

TEST_F(QueueTest, SubmitWaitsWhileTheWindowIsFull) {
  daemon_.HoldCompletions();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue_.Submit(Echo("x")).ok());
  const absl::Status full = queue_.Submit(Echo("x"), {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  std::atomic<bool> through = false;
  std::thread submitter([&] {
    EXPECT_TRUE(queue_.Submit(Echo("x")).ok());
    through = true;
  });
  EXPECT_TRUE(Eventually([&] { return daemon_.BatchesHeld() == 4; }));
  EXPECT_FALSE(through);
  daemon_.ReleaseCompletions();
  submitter.join();
  EXPECT_TRUE(queue_.Drain().ok());
  EXPECT_EQ(daemon_.MostBatchesInFlight(), 4);
}

TEST_F(QueueTest, SubmitWaitsForRoomOfBytesToo) {
  daemon_.HoldCompletions();
  const std::string half(600 << 10, 'x');
  ASSERT_TRUE(queue_.Submit(Echo(half)).ok());
  EXPECT_EQ(queue_.Submit(Echo(half), {.timeout = absl::Milliseconds(20)}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue_.Submit(Echo("small")).ok());
  daemon_.ReleaseCompletions();
  EXPECT_TRUE(queue_.Submit(Echo(half)).ok());
  EXPECT_TRUE(queue_.Close().ok());
}

TEST_F(QueueTest, BatchLargerThanTheWindowIsRefusedHere) {
  const absl::Status status = queue_.Submit(Echo(std::string((1 << 20) + 1, 'x'))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(queue_.Submit(Echo("x")).ok()) << "the queue goes on";
}

TEST_F(QueueTest, ManyCompletionsInOneMessageAreAllTaken) {
  daemon_.HoldCompletions();
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(*queue_.Submit(Echo(std::to_string(i))));
  ASSERT_TRUE(Eventually([&] { return daemon_.BatchesHeld() == 4; }));
  EXPECT_FALSE(tickets[3].done());
  EXPECT_EQ(tickets[3].Wait(absl::Milliseconds(5)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  daemon_.ReleaseCompletions(/*per_message=*/4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tickets[i].Wait()->output(0), std::to_string(i));
}

TEST_F(QueueTest, CallbacksRunInOrder) {
  absl::Mutex mu;
  std::vector<std::string> seen;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(queue_
                    .Submit(Echo(std::to_string(i)),
                            [&](absl::StatusOr<Result> result) {
                              absl::MutexLock lock(&mu);
                              seen.push_back(std::string(result->output(0)));
                            })
                    .ok());
  }
  ASSERT_TRUE(queue_.Close().ok());
  ASSERT_EQ(seen.size(), 50);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[i], std::to_string(i));
}

TEST_F(QueueTest, WhatFollowsAFailureIsAbortedUntilResume) {
  daemon_.FailBatch(2, Signed(absl::InvalidArgumentError("n=70"), "INVALID"));
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(*queue_.Submit(Echo("x")));
  tickets.push_back(*queue_.Submit(Echo("on"), {.resume = true}));
  EXPECT_TRUE(tickets[0].Wait().ok());
  const absl::Status failed = tickets[1].Wait().status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.message(), "n=70");
  EXPECT_EQ(ReasonOf(failed), "INVALID");
  EXPECT_EQ(ReasonOf(tickets[2].Wait().status()), "EARLIER_BATCH_FAILED");
  EXPECT_EQ(tickets[3].Wait()->output(0), "on");
}

TEST_F(QueueTest, BrokenStreamFailsWhatIsInFlightAndWhatComes) {
  daemon_.HoldCompletions();
  daemon_.CutQueueAt(3);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(*queue_.Submit(Echo("x")));
  for (Ticket& ticket : tickets) {
    EXPECT_EQ(ticket.Wait().status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(queue_.Submit(Echo("x")).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(queue_.Drain().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(queue_.Close().code(), absl::StatusCode::kUnavailable);
}

TEST_F(QueueTest, CompletionsOutOfOrderAreTheServersFault) {
  daemon_.MisorderCompletions();
  Ticket first = *queue_.Submit(Echo("x"));
  Ticket second = *queue_.Submit(Echo("x"));
  const absl::Status status = first.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("batch 2 out of order"));
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kInternal);
}

TEST_F(QueueTest, DestructionCancelsWhatIsInFlight) {
  daemon_.HoldCompletions();
  Ticket ticket = *queue_.Submit(Echo("x"));
  queue_ = Queue();
  const absl::Status status = ticket.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Close it first"));
}

TEST_F(QueueTest, CloseLetsWhatIsInFlightFinishAndEndsSubmitting) {
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(*queue_.Submit(Echo("x")));
  EXPECT_TRUE(queue_.Close().ok());
  for (Ticket& ticket : tickets) EXPECT_TRUE(ticket.Wait().ok());
  EXPECT_EQ(queue_.Submit(Echo("x")).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(queue_.Close().ok());
}

TEST_F(QueueTest, DrainGivesUpAtItsTimeout) {
  daemon_.HoldCompletions();
  Ticket ticket = *queue_.Submit(Echo("x"));
  EXPECT_EQ(queue_.Drain(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
  daemon_.ReleaseCompletions();
  EXPECT_TRUE(queue_.Drain().ok());
}

TEST_F(QueueTest, PlansRunInIt) {
  const Plan plan = *session_.CreatePlan(Echo("abc"));
  EXPECT_EQ(queue_.Submit(plan)->Wait()->output(0), "abc");
  EXPECT_EQ(queue_.Submit(plan, {.inputs = {"xyz"}})->Wait()->output(0), "xyz");
}

TEST_F(QueueTest, InvalidOpsAreNotSent) {
  OpList ops;
  ops.Add(Read{Tensor(buffer_.id(), DType::kI8, {4}).Slice(0, 3, 3)});
  EXPECT_EQ(queue_.Submit(ops).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(queue_.Submit(Echo("x"))->Wait().ok());
}

TEST_F(QueueTest, OpeningFailsWithTheServersWords) {
  daemon_.Fail("Queue", Signed(absl::ResourceExhaustedError("too many streams"), "STREAM_LIMIT"));
  EXPECT_EQ(ReasonOf(session_.OpenQueue().status()), "STREAM_LIMIT");
}

TEST_F(QueueTest, SeveralThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string text = std::to_string(t) + "/" + std::to_string(i);
        EXPECT_EQ(queue_.Submit(Echo(text))->Wait()->output(0), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(queue_.Close().ok());
  EXPECT_LE(daemon_.MostBatchesInFlight(), 4);
}

}  // namespace
}  // namespace gemmd::client
