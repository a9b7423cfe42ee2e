// Batches of one Queue stream on two devices: their order, and what becomes of one that waits for
// its turn when the stream, the session or the daemon ends.

#include <signal.h>

#include <optional>

#include "tests/e2e/two_devices.h"

namespace gemmd::e2e {
namespace {

using client::Copy;
using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using client::Ticket;
using ::testing::Each;
using ::testing::ElementsAre;

class TwoDevicesQueueTest : public TwoDevicesTest {
 protected:
  // Long enough for the daemon to read what comes behind it: some tenths of a second.
  OpList Long() {
    if (!weights_) {
      weights_.emplace(On(kFar, {kSide, kSide}));
      product_.emplace(On(kFar, {kSide, kSide}));
    }
    OpList ops;
    for (int i = 0; i < (OnGpus() ? 200 : 2); ++i) {
      ops.Add(Matmul{.a = weights_->tensor(), .b = weights_->tensor(), .d = product_->tensor()});
    }
    return ops;
  }
  // A long batch on the far device, and behind it one that reads that device, which the daemon has
  // taken: its inline bytes are counted.
  Ticket SubmitLongAndWaiting(client::Queue& queue, client::Buffer& far, client::Buffer& near,
                              Ticket& waiting) {
    Ticket first = Must(queue.Submit(Long()));
    OpList copy;
    copy.Add(Copy{far.tensor(), near.tensor()}).Add(Read{near.tensor()});
    waiting = Must(queue.Submit(copy));
    EXPECT_TRUE(WaitUntil(
        [&] { return daemon_.Metric("gemmd_transfer_bytes_total", "path=\"inline\"") > 0; }));
    return first;
  }

  static constexpr int64_t kSide = 2048;
  std::optional<client::Buffer> weights_, product_;
};

TEST_F(TwoDevicesQueueTest, BatchesOnTwoDevicesKeepTheirOrder) {
  constexpr int kRounds = 300;
  client::Buffer far = On(kFar, {256, 256});
  client::Buffer near = On(kNear, {256, 256});
  const client::Tensor corner = near.tensor().Slice(0, 255, 1).Slice(1, 255, 1);
  client::Queue queue = Must(session_.OpenQueue());
  std::vector<Ticket> copies;
  for (int round = 0; round < kRounds; ++round) {
    Must(queue.Submit(OpList().Add(Fill{far.tensor(), 2.0 * round})));
    copies.push_back(
        Must(queue.Submit(OpList().Add(Copy{far.tensor(), near.tensor()}).Add(Read{corner}))));
    Must(queue.Submit(OpList().Add(Fill{far.tensor(), -1})));
    // On the other device alone, behind one that reads both.
    if (round % 3 == 0) Must(queue.Submit(OpList().Add(Fill{near.tensor(), -2})));
  }
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_THAT(FloatsOf(Must(copies[round].Wait())), ElementsAre(2.0f * round));
  }
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(TwoDevicesQueueTest, BothDirectionsInTurnsKeepTheirOrder) {
  constexpr int kRounds = 100;
  client::Buffer far = On(kFar, {128, 128});
  client::Buffer near = On(kNear, {128, 128});
  client::Queue queue = Must(session_.OpenQueue());
  std::vector<Ticket> reads;
  for (int round = 0; round < kRounds; ++round) {
    Must(queue.Submit(OpList().Add(Fill{near.tensor(), 1.0 * round})));
    Must(queue.Submit(OpList().Add(Copy{near.tensor(), far.tensor()})));
    Must(queue.Submit(OpList().Add(Fill{near.tensor(), -1})));
    Must(queue.Submit(OpList().Add(Copy{far.tensor(), near.tensor()})));
    reads.push_back(Must(queue.Submit(OpList().Add(Read{near.tensor()}))));
  }
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_THAT(FloatsOf(Must(reads[round].Wait())), Each(1.0f * round));
  }
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(TwoDevicesQueueTest, AFailureBeforeItStopsABatchThatWaited) {
  client::Buffer far = On(kFar, {4});
  client::Buffer near = On(kNear, {4});
  client::Queue queue = Must(session_.OpenQueue());
  Ticket slow = Must(queue.Submit(Long()));
  const client::Tensor beyond(far.id(), client::DType::kF32, {4}, 4);
  Ticket bad = Must(queue.Submit(OpList().Add(Fill{beyond, 1})));
  Ticket behind = Must(queue.Submit(OpList().Add(Copy{far.tensor(), near.tensor()})));
  EXPECT_TRUE(slow.Wait().ok());
  EXPECT_EQ(bad.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(behind.Wait().status().code(), absl::StatusCode::kAborted);
  Ticket again =
      Must(queue.Submit(OpList().Add(Copy{far.tensor(), near.tensor()}), {.resume = true}));
  EXPECT_TRUE(again.Wait().ok());
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(TwoDevicesQueueTest, OneBatchAtATimeIsQueuedWhenEachTouchesAnotherDevice) {
  client::Buffer far = On(kFar, {4});
  client::Buffer near = On(kNear, {4});
  client::Queue queue = Must(session_.OpenQueue());
  for (int i = 0; i < 3; ++i) {
    Must(queue.Submit(OpList().Add(Fill{near.tensor(), 1.0 * i})));
    Must(queue.Submit(Long()));
  }
  int looks = 0;
  while (looks < 3 || HoldingsOf(daemon_).programs > 0) {
    // One runs, and the one before it may not be let go of yet. All six would be there otherwise.
    ASSERT_LE(HoldingsOf(daemon_).programs, 2);
    if (++looks == 20) break;
  }
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(TwoDevicesQueueTest, ACutStreamDropsTheBatchThatWaits) {
  client::Buffer far = On(kFar, {4});
  client::Buffer near = On(kNear, {4});
  Ticket first, waiting;
  {
    client::Queue queue = Must(session_.OpenQueue());
    first = SubmitLongAndWaiting(queue, far, near, waiting);
  }
  EXPECT_FALSE(waiting.Wait().ok());
  // Both are answered and let go of: the session's end waits for them.
  ASSERT_TRUE(session_.Close().ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon_));
}

TEST_F(TwoDevicesQueueTest, ASessionThatEndsAnswersTheBatchThatWaits) {
  client::Buffer far = On(kFar, {4});
  client::Buffer near = On(kNear, {4});
  client::Queue queue = Must(session_.OpenQueue());
  Ticket waiting;
  Ticket first = SubmitLongAndWaiting(queue, far, near, waiting);
  client::Client other = ConnectTo(daemon_);
  client::Session same = Must(other.AttachSession(session_.id()));
  ASSERT_TRUE(same.Close().ok());
  // Stopped, if it had not ended by then.
  EXPECT_THAT(first.Wait().status().code(),
              testing::AnyOf(absl::StatusCode::kOk, absl::StatusCode::kCancelled));
  const absl::Status dropped = waiting.Wait().status();
  EXPECT_EQ(dropped.code(), absl::StatusCode::kCancelled) << dropped;
  EXPECT_EQ(client::ReasonOf(dropped), "SESSION_GONE");
  EXPECT_TRUE(queue.Close().ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon_));
}

TEST_F(TwoDevicesQueueTest, ADrainAnswersTheBatchThatWaits) {
  client::Buffer far = On(kFar, {4});
  client::Buffer near = On(kNear, {4});
  Must(session_.Execute(OpList().Add(Fill{far.tensor(), 7})));
  client::Queue queue = Must(session_.OpenQueue());
  Ticket waiting;
  Ticket first = SubmitLongAndWaiting(queue, far, near, waiting);
  daemon_.process().Signal(SIGTERM);
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_THAT(FloatsOf(Must(waiting.Wait())), Each(7.0f));
  EXPECT_EQ(daemon_.process().Wait(absl::Minutes(1)), 0);
}

}  // namespace
}  // namespace gemmd::e2e
