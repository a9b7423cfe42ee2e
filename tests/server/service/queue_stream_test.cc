// A Queue stream on a device that the test completes: what is read ahead, what completions wait
// for, and what is left behind.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/service/served_device.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;

bool ComesTrue(absl::FunctionRef<bool()> condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  return condition();
}

class QueueStreamTest : public ServedDevice {
 protected:
  static constexpr int kWindow = 64;

  QueueStreamTest() {
    Config config;
    config.tenants = {{.name = "red", .limits = {.window_batches = kWindow}}};
    config.share.disabled = true;
    config.scheduler.lookahead = absl::Seconds(1);
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<FakeBackend>(device_));
    stub_ = v1::ComputeService::NewStub(Serve(config, std::move(backends)));
    BufferSpec spec{.size_bytes = 1024};
    auto buffer =
        *Buffer::Create(session_->tenant(), *state_->devices()[0], std::move(spec), clock_.Now());
    buffer_ = ToBytes(*session_->AddBuffer({.buffer = std::move(buffer)}));
  }

  void OpenStream(grpc::ClientContext* context = nullptr) {
    stream_ = stub_->Queue(context != nullptr ? context : &context_);
    v1::QueueRequest request;
    request.mutable_open()->set_session_id(ToBytes(session_->handle()));
    ASSERT_TRUE(stream_->Write(request));
    v1::QueueResponse response;
    ASSERT_TRUE(stream_->Read(&response));
    ASSERT_TRUE(response.has_opened());
  }
  void FillBatch(int64_t sequence, v1::Batch* batch) {
    batch->set_sequence(sequence);
    v1::Tensor* dst = batch->add_ops()->mutable_fill()->mutable_dst();
    dst->set_buffer_id(buffer_);
    dst->set_dtype(v1::DTYPE_F32);
    dst->add_shape(4);
  }
  bool Send(int64_t sequence) {
    v1::QueueRequest request;
    FillBatch(sequence, request.mutable_batch());
    return stream_->Write(request);
  }
  // In one message.
  bool Send(int64_t first, int64_t last) {
    v1::QueueRequest request;
    for (int64_t i = first; i <= last; ++i) FillBatch(i, request.mutable_batches()->add_items());
    return stream_->Write(request);
  }
  // The sequences of the next message's completions; empty when there is none any more.
  std::vector<int64_t> ReadMessage() {
    v1::QueueResponse response;
    std::vector<int64_t> sequences;
    if (!stream_->Read(&response)) return sequences;
    for (const v1::Completion& item : response.completions().items()) {
      EXPECT_EQ(item.code(), 0) << item.message();
      sequences.push_back(item.sequence());
    }
    return sequences;
  }
  void Complete(bool more) { std::move(device_.TakeOne().done)({.more = more}); }
  bool Launches(int programs) {
    return ComesTrue([&] { return device_.total() >= programs; }) && device_.total() == programs;
  }

  std::unique_ptr<v1::ComputeService::Stub> stub_;
  std::string buffer_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::QueueRequest, v1::QueueResponse>> stream_;
};

TEST_F(QueueStreamTest, CompletionsWaitForTheOneThatHasEndedToo) {
  OpenStream();
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(Send(i));
  ASSERT_TRUE(Launches(3));
  Complete(/*more=*/true);
  Complete(/*more=*/true);
  Complete(/*more=*/false);
  EXPECT_THAT(ReadMessage(), ElementsAre(1, 2, 3));
}

TEST_F(QueueStreamTest, BatchesOfOneMessageRunInOrderAmongOthers) {
  OpenStream();
  ASSERT_TRUE(Send(1));
  ASSERT_TRUE(Send(2, 6));
  ASSERT_TRUE(Send(7));
  ASSERT_TRUE(Send(8, 9));
  ASSERT_TRUE(Launches(9));
  for (int i = 1; i <= 9; ++i) Complete(/*more=*/i < 9);
  std::vector<int64_t> sequences;
  while (sequences.size() < 9) {
    const std::vector<int64_t> some = ReadMessage();
    ASSERT_FALSE(some.empty());
    sequences.insert(sequences.end(), some.begin(), some.end());
  }
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
}

// A batch that is written as completed before the last one is looked at makes room for it: then the
// stream ends well, and another is tried.
TEST_F(QueueStreamTest, AMessageBeyondTheWindowEndsTheStreamBehindWhatFits) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    grpc::ClientContext context;
    OpenStream(&context);
    const int before = device_.total();
    ASSERT_TRUE(Send(1, kWindow + 1));
    ASSERT_TRUE(stream_->WritesDone());
    ASSERT_TRUE(ComesTrue([&] { return device_.total() >= before + kWindow; }));
    std::atomic<bool> over = false;
    std::thread completing([&] {
      for (; !over; absl::SleepFor(absl::Milliseconds(1))) device_.CompleteAll();
    });
    size_t completed = 0;
    for (std::vector<int64_t> some = ReadMessage(); !some.empty(); some = ReadMessage()) {
      completed += some.size();
    }
    over = true;
    completing.join();
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    if (status.ok()) continue;
    EXPECT_EQ(completed, kWindow);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    return;
  }
  FAIL() << "every stream's last batch found room";
}

TEST_F(QueueStreamTest, NotManyCompletionsWait) {
  OpenStream();
  for (int i = 1; i <= 20; ++i) ASSERT_TRUE(Send(i));
  ASSERT_TRUE(Launches(20));
  for (int i = 0; i < 19; ++i) Complete(/*more=*/true);
  std::vector<int64_t> first = ReadMessage();
  EXPECT_LT(first.size(), 19);
  EXPECT_EQ(first.front(), 1);
  Complete(/*more=*/false);
  size_t received = first.size();
  while (received < 20) received += ReadMessage().size();
  EXPECT_EQ(received, 20);
}

TEST_F(QueueStreamTest, NothingWaitsForAnotherStreamsBatch) {
  OpenStream();
  grpc::ClientContext other_context;
  auto other = stub_->Queue(&other_context);
  std::swap(stream_, other);
  v1::QueueRequest open;
  open.mutable_open()->set_session_id(ToBytes(session_->handle()));
  ASSERT_TRUE(stream_->Write(open));
  v1::QueueResponse opened;
  ASSERT_TRUE(stream_->Read(&opened));
  std::swap(stream_, other);
  ASSERT_TRUE(Send(1));
  ASSERT_TRUE(Launches(1));
  std::swap(stream_, other);
  ASSERT_TRUE(Send(7));
  ASSERT_TRUE(Launches(2));
  std::swap(stream_, other);
  Complete(/*more=*/true);  // and the next is the other's
  EXPECT_THAT(ReadMessage(), ElementsAre(1));
  Complete(/*more=*/false);
  std::swap(stream_, other);
  EXPECT_THAT(ReadMessage(), ElementsAre(7));
  other_context.TryCancel();
}

TEST_F(QueueStreamTest, ABurstIsAnsweredInOrder) {
  constexpr int64_t kBatches = 2000;
  OpenStream();
  std::atomic<bool> over = false;
  std::thread device([&] {
    for (uint32_t turn = 0; !over;) {
      if (device_.pending() > 1) {
        Complete(/*more=*/++turn % 3 != 0);
      } else if (!device_.CompleteOne()) {
        std::this_thread::yield();
      }
    }
  });
  std::atomic<int64_t> answered = 0;
  std::thread writer([&] {
    for (int64_t i = 1; i <= kBatches; ++i) {
      while (i - answered > kWindow) std::this_thread::yield();
      if (!Send(i)) return;
    }
    stream_->WritesDone();
  });
  std::vector<int64_t> all;
  for (std::vector<int64_t> some = ReadMessage(); !some.empty(); some = ReadMessage()) {
    all.insert(all.end(), some.begin(), some.end());
    answered = static_cast<int64_t>(all.size());
  }
  answered = kBatches;
  writer.join();
  over = true;
  device.join();
  std::vector<int64_t> expected(kBatches);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(all, expected);
  EXPECT_TRUE(stream_->Finish().ok());
}

// The device begins to make room once the window is full. When it is quicker than the server is to
// look at the batch behind that, the batch has a place, and the next stream is to show it.
TEST_F(QueueStreamTest, ReadingAheadDoesNotWidenTheWindow) {
  std::array<grpc::ClientContext, 20> contexts;
  grpc::Status status;
  for (auto context = contexts.begin(); status.ok() && context != contexts.end(); ++context) {
    OpenStream(&*context);
    const int before = device_.total();
    std::atomic<bool> over = false;
    std::atomic<int> most = 0;
    std::thread device([&] {
      ComesTrue([&] { return device_.pending() >= kWindow; });
      while (!over) {
        most = std::max(most.load(), device_.pending());
        if (!device_.CompleteOne()) std::this_thread::yield();
      }
    });
    for (int i = 1; i <= kWindow + 3; ++i) Send(i);
    stream_->WritesDone();
    int received = 0;
    for (std::vector<int64_t> some = ReadMessage(); !some.empty(); some = ReadMessage()) {
      received += static_cast<int>(some.size());
    }
    status = stream_->Finish();
    stream_.reset();  // before its context
    over = true;
    device.join();
    EXPECT_EQ(received, device_.total() - before);  // what was accepted is answered
    EXPECT_GE(received, kWindow);
    EXPECT_LE(most, kWindow);
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(QueueStreamTest, AStreamCutInABurstLeavesNothing) {
  constexpr int kCutBehind = 100;
  OpenStream();
  std::atomic<bool> over = false, cut = false;
  std::thread device([&] {
    while (!over) {
      if (!device_.CompleteOne()) std::this_thread::yield();
    }
  });
  std::atomic<int64_t> answered = 0;
  std::thread writer([&] {
    for (int64_t i = 1; Send(i); ++i) {
      while (!cut && i - answered >= kWindow) std::this_thread::yield();
    }
  });
  while (answered < kCutBehind) answered += static_cast<int64_t>(ReadMessage().size());
  context_.TryCancel();
  cut = true;
  for (std::vector<int64_t> some = ReadMessage(); !some.empty(); some = ReadMessage()) {
    answered += static_cast<int64_t>(some.size());
  }
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::CANCELLED);
  writer.join();
  EXPECT_TRUE(streams_.AwaitNone(absl::Now() + absl::Minutes(1)));
  // A session ends when nothing of it is under way any more.
  std::atomic<bool> freed = false;
  session_->End([&](Session::Freed) { freed = true; });
  EXPECT_TRUE(ComesTrue([&] { return freed.load(); }));
  over = true;
  device.join();
}

}  // namespace
}  // namespace gemmd::server
