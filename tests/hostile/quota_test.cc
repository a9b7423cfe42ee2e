// What a tenant's plans and unread results hold of the host's memory is counted, bounded, and given
// back.

#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class QuotaTest : public testing::Test {
 protected:
  QuotaTest()
      : daemon_({.config = "limits { max_host_bytes: 8388608 window_bytes: 2097152 }"}),
        wire_(daemon_.target()),
        session_(wire_.OpenSession()),
        buffer_(wire_.CreateBuffer(session_, 2 * kMiB)) {}

  grpc::Status CreatePlan(const std::vector<v1::Op>& ops, std::string* plan_id = nullptr) {
    grpc::ClientContext context;
    v1::CreatePlanRequest request;
    request.set_session_id(session_);
    for (const v1::Op& op : ops) *request.add_ops() = op;
    v1::Plan plan;
    const grpc::Status status = wire_.compute().CreatePlan(&context, request, &plan);
    if (plan_id != nullptr) *plan_id = plan.plan_id();
    return status;
  }
  double HostBytes() { return daemon_.Metric("gemmd_tenant_host_bytes", "tenant=\"default\""); }
  double Reads() { return daemon_.Metric("gemmd_ops_total", "op=\"read\""); }

  Daemon daemon_;
  Wire wire_;
  std::string session_;
  std::string buffer_;
};

TEST_F(QuotaTest, APlansDataIsChargedAndGivenBack) {
  const v1::Op write = WriteOp(View(buffer_, {kMiB}, v1::DTYPE_I8), std::string(kMiB, 'x'));
  int made = 0;
  std::string plan;
  grpc::Status status;
  while (made < 100 && (status = CreatePlan({write}, &plan)).ok()) ++made;
  EXPECT_EQ(made, 7);  // of 8 MiB, less what their programs take
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max_host_bytes"));
  EXPECT_THAT(status.error_message(), HasSubstr("limit 8388608"));
  EXPECT_THAT(status.error_message(), HasSubstr("delete plans"));
  EXPECT_GE(HostBytes(), 7 * kMiB);
  EXPECT_EQ(daemon_.Metric("gemmd_rejected_total", "reason=\"HOST_BYTES_LIMIT\""), 1);
  // Work that needs none of it goes on.
  EXPECT_TRUE(wire_.Execute(session_, {FillOp(View(buffer_, {16}), 1)}).ok());
  EXPECT_TRUE(wire_.CloseSession(session_).ok());
  EXPECT_TRUE(WaitUntil([&] { return HostBytes() == 0; })) << HostBytes();
}

TEST_F(QuotaTest, APlansOpsAreCharged) {
  const std::vector<v1::Op> ops(4096, FillOp(View(buffer_, {1}), 1));
  int made = 0;
  grpc::Status status;
  while (made < 100 && (status = CreatePlan(ops)).ok()) ++made;
  EXPECT_EQ(made, 1);
  EXPECT_THAT(status.error_message(), HasSubstr("max_host_bytes"));
}

TEST_F(QuotaTest, AStreamThatNobodyReadsStopsRunning) {
  constexpr int kBatches = 32;
  constexpr int64_t kResult = 512 << 10;
  grpc::ClientContext context;
  auto stream = wire_.compute().Queue(&context);
  v1::QueueRequest open;
  open.mutable_open()->set_session_id(session_);
  ASSERT_TRUE(stream->Write(open));
  for (int i = 1; i <= kBatches; ++i) {
    v1::QueueRequest request;
    request.mutable_batch()->set_sequence(i);
    *request.mutable_batch()->add_ops() = ReadOp(View(buffer_, {kResult}, v1::DTYPE_I8));
    ASSERT_TRUE(stream->Write(request));
  }
  // Four fit into the window. One or two may have gone to the client's side of the connection.
  ASSERT_TRUE(WaitUntil([&] { return Reads() >= 4; }));
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_LE(Reads(), 10);
  EXPECT_LE(HostBytes(), 3 * kMiB);
  // Another session's work goes on meanwhile.
  EXPECT_TRUE(wire_.Execute(wire_.OpenSession(), {}).error_code() !=
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Once it is read, all the rest runs, in order.
  v1::QueueResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_opened());
  int next = 1;
  while (next <= kBatches && stream->Read(&response)) {
    for (const v1::Completion& item : response.completions().items()) {
      EXPECT_EQ(item.sequence(), next++);
      EXPECT_EQ(item.code(), 0) << item.message();
      ASSERT_EQ(item.outputs_size(), 1);
      EXPECT_EQ(item.outputs(0).size(), kResult);
    }
  }
  EXPECT_EQ(next, kBatches + 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Reads(), kBatches);
  EXPECT_TRUE(WaitUntil([&] { return HostBytes() == 0; })) << HostBytes();
}

// docs/operations.md counts one message a stream on its way out, of max_message_bytes at most.
TEST_F(QuotaTest, SeveralResultsShareAMessageOnlyWhereItStaysSmall) {
  constexpr int kBatches = 32;
  constexpr int64_t kResult = 600 << 10;
  grpc::ClientContext context;
  auto stream = wire_.compute().Queue(&context);
  v1::QueueRequest request;
  request.mutable_open()->set_session_id(session_);
  ASSERT_TRUE(stream->Write(request));
  for (int i = 1; i <= kBatches; ++i) {
    request.mutable_batch()->set_sequence(i);
    request.mutable_batch()->clear_ops();
    *request.mutable_batch()->add_ops() = ReadOp(View(buffer_, {kResult}, v1::DTYPE_I8));
    ASSERT_TRUE(stream->Write(request));
  }
  // Several wait for the reader by now.
  ASSERT_TRUE(WaitUntil([&] { return Reads() >= 3; }));
  absl::SleepFor(absl::Milliseconds(300));
  int answered = 0;
  v1::QueueResponse response;
  while (answered < kBatches && stream->Read(&response)) {
    EXPECT_LE(response.ByteSizeLong(), kMiB + 1024) << "after " << answered << " results";
    answered += response.completions().items_size();
  }
  EXPECT_EQ(answered, kBatches);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(DownloadQuotaTest, ChunksStayWithinAMessage) {
  const Daemon daemon({.config = "limits { max_message_bytes: 65536 }"});
  Wire wire(daemon.target());
  const std::string session = wire.OpenSession();
  v1::DownloadRequest request;
  request.set_session_id(session);
  request.set_buffer_id(wire.CreateBuffer(session, kMiB));
  request.set_chunk_bytes(3 * kMiB);
  grpc::ClientContext context;
  auto stream = wire.buffers().Download(&context, request);
  v1::DownloadResponse response;
  int64_t bytes = 0;
  while (stream->Read(&response)) {
    EXPECT_LE(response.ByteSizeLong(), 65536);
    EXPECT_EQ(response.offset_bytes(), bytes);
    bytes += static_cast<int64_t>(response.data().size());
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(bytes, kMiB);
}

TEST_F(QuotaTest, AnUnreadStreamThatIsCutGivesBackWhatItHeld) {
  {
    grpc::ClientContext context;
    auto stream = wire_.compute().Queue(&context);
    v1::QueueRequest request;
    request.mutable_open()->set_session_id(session_);
    ASSERT_TRUE(stream->Write(request));
    for (int i = 1; i <= 16; ++i) {
      request.mutable_batch()->set_sequence(i);
      request.mutable_batch()->clear_ops();
      *request.mutable_batch()->add_ops() = ReadOp(View(buffer_, {kMiB}, v1::DTYPE_I8));
      ASSERT_TRUE(stream->Write(request));
    }
    ASSERT_TRUE(WaitUntil([&] { return Reads() >= 2; }));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  wire_.GetBuffer(session_, buffer_);  // the cancellation goes out with the connection's next call
  // The session keeps the batch's one op, which came again, but none of its results.
  constexpr double kOfAnOp = 1024;
  EXPECT_TRUE(WaitUntil([&] { return HostBytes() <= kOfAnOp; })) << HostBytes();
  EXPECT_TRUE(wire_.CloseSession(session_).ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }));
  EXPECT_TRUE(WaitUntil([&] { return HostBytes() == 0; })) << HostBytes();
}

}  // namespace
}  // namespace gemmd::e2e
