// Execute as a remote caller sees it: one round trip, replays, priorities, transfers that resume.

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <random>

#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using client::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExecuteTest : public E2eTest {};

TEST_F(ExecuteTest, AStepIsOneRoundTrip) {
  client::Buffer x = MakeBuffer(session_, {1, 3});
  client::Buffer w = MakeBuffer(session_, {2, 3});
  client::Buffer y = MakeBuffer(session_, {1, 2});
  Must(w.Upload(Floats({1, 2, 3, -1, -2, -3})));
  OpList ops;
  const std::string input = Floats({1, 10, 100});
  ops.Add(Write{x.tensor(), input});
  ops.Add(Matmul{
      .a = x.tensor(), .b = w.tensor(), .d = y.tensor(), .activation = client::Activation::kRelu});
  ops.Add(Read{y.tensor()});
  EXPECT_THAT(FloatsOf(Must(session_.Execute(ops))), ElementsAre(321.0f, 0.0f));
}

TEST_F(ExecuteTest, BytesThatAreNoRequestAreRefused) {
  const auto channel = grpc::CreateChannel(daemon_.target(), grpc::InsecureChannelCredentials());
  for (const char* method : {"Execute", "RunPlan"}) {
    const Answered answered =
        CallByName(channel, absl::StrCat("/gemmd.v1.ComputeService/", method), "\xff\xff\xff");
    EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answered.status.error_message(), HasSubstr(absl::StrCat(method, "Request")));
  }
}

// More than a digest looks at, and more than a message's block holds.
TEST_F(ExecuteTest, LongDataComesBackAndIsToldApart) {
  constexpr int64_t kBytes = 1 << 20;
  client::Buffer buffer = MakeBuffer(session_, {kBytes}, client::DType::kI8);
  std::mt19937 random(5);
  std::string data(kBytes, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  const auto run = [&](const std::string& bytes) {
    OpList ops;
    ops.Add(Write{buffer.tensor(), bytes}).Add(Read{buffer.tensor()}).Add(Read{buffer.tensor()});
    return session_.Execute(ops, {.op_id = "long"});
  };
  for (const bool replayed : {false, true}) {
    const client::Result result = Must(run(data));
    EXPECT_EQ(result.replayed(), replayed);
    for (int output : {0, 1}) {
      const absl::Span<const int8_t> bytes = result.Output<int8_t>(output);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data.begin(), data.end()));
    }
  }
  std::string other(data.rbegin(), data.rend());
  EXPECT_EQ(client::ReasonOf(run(other).status()), "OP_ID_REUSED");
}

// The server keeps ops that come again without their data, which is another each time.
TEST_F(ExecuteTest, TheSameOpsWithOtherDataDoOtherWork) {
  for (const int64_t rows : {2, 3000}) {
    client::Buffer x = MakeBuffer(session_, {rows, 8});
    client::Buffer y = MakeBuffer(session_, {rows, 8});
    for (int run = 0; run < 5; ++run) {
      std::vector<float> values(rows * 8);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * (run + 1) % 251);
      const std::string bytes(client::AsBytes(absl::MakeConstSpan(values)));
      OpList ops;
      ops.Add(Write{x.tensor(), bytes}).Add(client::Copy{x.tensor(), y.tensor()});
      ops.Add(Read{y.tensor()});
      const client::Result result = Must(session_.Execute(ops));
      ops.Clear();  // what was sent stays as it was
      std::vector<float> seen(values.size());
      ASSERT_TRUE(result.CopyOutput(0, absl::MakeSpan(seen)).ok());
      EXPECT_EQ(seen, values) << rows << " rows, run " << run;
      EXPECT_EQ(std::string(result.output(0)), bytes);
    }
    // The same bytes but for the data's length: refused, by name.
    OpList ops;
    ops.Add(Write{x.tensor(), std::string(rows * 32 - 4, 'x')});
    ops.Add(client::Copy{x.tensor(), y.tensor()}).Add(Read{y.tensor()});
    const absl::Status refused = session_.Execute(ops).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("write"));
  }
}

TEST_F(ExecuteTest, APlansLongInputsAreItsOwnEachTime) {
  constexpr int64_t kBytes = 200000;
  client::Buffer buffer = MakeBuffer(session_, {kBytes}, client::DType::kI8);
  OpList ops;
  ops.Add(Write{buffer.tensor(), std::string(kBytes, 'd')}).Add(Read{buffer.tensor()});
  const client::Plan plan = Must(session_.CreatePlan(ops));
  for (const char letter : {'a', 'b'}) {
    const std::string input(kBytes, letter);
    const client::ExecuteOptions options = {.op_id = std::string(1, letter)};
    EXPECT_EQ(Must(plan.Run({.inputs = {input}}, options)).output(0), input);
    EXPECT_TRUE(Must(plan.Run({.inputs = {input}}, options)).replayed());
    const std::string other(kBytes, 'o');
    EXPECT_EQ(client::ReasonOf(plan.Run({.inputs = {other}}, options).status()), "OP_ID_REUSED");
  }
  EXPECT_EQ(Must(plan.Run()).output(0), std::string(kBytes, 'd'));
  const std::string wrong(kBytes - 1, 'w');
  EXPECT_THAT(std::string(plan.Run({.inputs = {wrong}}).status().message()),
              HasSubstr("inputs[0] has 199999 bytes"));
}

TEST_F(ExecuteTest, ARetryWithTheSameIdRunsOnce) {
  client::Buffer x = MakeBuffer(session_, {1, 1});
  client::Buffer two = MakeBuffer(session_, {1, 1});
  client::Buffer y = MakeBuffer(session_, {1, 1});
  Must(session_.Execute(OpList().Add(Fill{x.tensor(), 1}).Add(Fill{two.tensor(), 2})));
  // x = 2x: running it twice would show.
  OpList doubling;
  doubling.Add(Matmul{.a = x.tensor(), .b = two.tensor(), .d = y.tensor()});
  doubling.Add(client::Copy{y.tensor(), x.tensor()});
  doubling.Add(Read{x.tensor()});
  const client::Result first = Must(session_.Execute(doubling, {.op_id = "step-1"}));
  const client::Result again = Must(session_.Execute(doubling, {.op_id = "step-1"}));
  EXPECT_FALSE(first.replayed());
  EXPECT_TRUE(again.replayed());
  EXPECT_THAT(FloatsOf(again), ElementsAre(2.0f));
  EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{x.tensor()})))), ElementsAre(2.0f));
  EXPECT_THAT(FloatsOf(Must(session_.Execute(doubling, {.op_id = "step-2"}))), ElementsAre(4.0f));
}

TEST_F(ExecuteTest, AnIdNamesOneProgramAndItsRetries) {
  client::Buffer x = MakeBuffer(session_, {1});
  Must(session_.Execute(OpList().Add(Fill{x.tensor(), 1}), {.op_id = "same"}));
  const auto other = session_.Execute(OpList().Add(Fill{x.tensor(), 2}), {.op_id = "same"});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client::ReasonOf(other.status()), "OP_ID_REUSED");
  EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{x.tensor()})))), ElementsAre(1.0f));
  // How urgent it is and what is reported of it may change from try to try.
  EXPECT_TRUE(Must(session_.Execute(OpList().Add(Fill{x.tensor(), 1}),
                                    {.report = client::ReportLevel::kNone, .op_id = "same"}))
                  .replayed());
}

TEST_F(ExecuteTest, AnIdIsTheSessionsOwn) {
  client::Session other = Must(client_.OpenSession());
  client::Buffer x = MakeBuffer(session_, {1});
  client::Buffer y = MakeBuffer(other, {1});
  Must(session_.Execute(OpList().Add(Fill{x.tensor(), 1}), {.op_id = "same"}));
  EXPECT_FALSE(
      Must(other.Execute(OpList().Add(Fill{y.tensor(), 1}), {.op_id = "same"})).replayed());
}

// The server keeps ops that come again; what they find may have changed since.
TEST_F(ExecuteTest, TheSameOpsAgainSeeWhatIsThereNow) {
  client::Buffer x = MakeBuffer(session_, {1, 1});
  client::Buffer two = MakeBuffer(session_, {1, 1});
  client::Buffer y = MakeBuffer(session_, {1, 1});
  Must(session_.Execute(OpList().Add(Fill{two.tensor(), 2})));
  OpList ops;
  ops.Add(Matmul{.a = x.tensor(), .b = two.tensor(), .d = y.tensor()}).Add(Read{y.tensor()});
  for (float value : {1, 2, 3, 4}) {
    Must(session_.Execute(OpList().Add(Fill{x.tensor(), value})));
    EXPECT_THAT(FloatsOf(Must(session_.Execute(ops))), ElementsAre(2 * value));
  }
  OpList filling;
  filling.Add(Fill{x.tensor(), 7});
  for (int i = 0; i < 4; ++i) Must(session_.Execute(filling));
  ASSERT_TRUE(session_.Publish(x, "execute-test/x").ok());
  EXPECT_EQ(client::ReasonOf(session_.Execute(filling).status()), "READ_ONLY");
  EXPECT_THAT(FloatsOf(Must(session_.Execute(ops))), ElementsAre(14.0f));
  ASSERT_TRUE(session_.Unpublish("execute-test/x").ok());
  ASSERT_TRUE(two.Delete().ok());
  const absl::Status gone = session_.Execute(ops).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), HasSubstr("ops[0].matmul.b"));
}

TEST_F(ExecuteTest, OpsThatComeAgainKeepNoMemory) {
  client::Buffer x = MakeBuffer(session_, {1 << 20});
  const auto used = [&] { return Must(client_.ListDevices())[0].used_bytes(); };
  const int64_t before = used();
  OpList ops;
  ops.Add(Fill{x.tensor(), 1});
  for (int i = 0; i < 4; ++i) Must(session_.Execute(ops));
  ASSERT_TRUE(x.Delete().ok());
  EXPECT_EQ(used(), before - (4 << 20));
}

TEST_F(ExecuteTest, MoreProgramsThanAreKeptStayRight) {
  std::vector<client::Buffer> buffers;
  for (int i = 0; i < 200; ++i) buffers.push_back(MakeBuffer(session_, {1}));
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 200; ++i) {
      OpList ops;
      ops.Add(Fill{buffers[i].tensor(), static_cast<double>(i)}).Add(Read{buffers[i].tensor()});
      ASSERT_THAT(FloatsOf(Must(session_.Execute(ops))), ElementsAre(static_cast<float>(i)));
    }
  }
}

TEST_F(ExecuteTest, AFreshBufferIsZero) {
  {
    client::Buffer dirty = MakeBuffer(session_, {1024});
    Must(session_.Execute(OpList().Add(Fill{dirty.tensor(), 9})));
    ASSERT_TRUE(dirty.Delete().ok());
  }
  client::Buffer fresh = MakeBuffer(session_, {1024});
  EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{fresh.tensor()})))),
              testing::Each(0.0f));
}

TEST_F(ExecuteTest, CountsWhatItDid) {
  client::Buffer x = MakeBuffer(session_, {32, 32});
  client::Buffer y = MakeBuffer(session_, {32, 32});
  OpList ops;
  ops.Add(Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
  for (int i = 0; i < 5; ++i) Must(session_.Execute(ops));
  const Samples samples = daemon_.Metrics();
  EXPECT_EQ(Sum(samples, "gemmd_ops_total", "op=\"matmul\""), 5);
  EXPECT_EQ(Sum(samples, "gemmd_flops_total"), 5 * 2.0 * 32 * 32 * 32);
  EXPECT_EQ(Sum(samples, "gemmd_requests_total", "method=\"Execute\""), 5);
  EXPECT_GT(Sum(samples, "gemmd_device_busy_seconds_total"), 0);
}

TEST_F(ExecuteTest, HighPriorityOvertakes) {
  // One lane, kept busy: what is high starts before what is low and came first.
  const int64_t size =
      TestDevice() == "cpu:0" ? 512 : 4096;  // a GPU must not be done before all are sent
  client::Buffer x = MakeBuffer(session_, {size, size});
  client::Buffer y = MakeBuffer(session_, {size, size});
  OpList ops;
  ops.Add(Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
  std::atomic<int> order{0};
  std::atomic<int> high_at{-1};
  std::vector<std::future<void>> done;
  const auto send = [&](client::Priority priority, std::atomic<int>* at) {
    auto promise = std::make_shared<std::promise<void>>();
    done.push_back(promise->get_future());
    session_.ExecuteAsync(ops, {.priority = priority}, [&order, at, promise](auto result) {
      EXPECT_TRUE(result.ok()) << result.status();
      const int mine = order++;
      if (at != nullptr) *at = mine;
      promise->set_value();
    });
  };
  for (int i = 0; i < 100; ++i) send(client::Priority::kLow, nullptr);
  ASSERT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_programs") > 50; }));
  send(client::Priority::kHigh, &high_at);
  for (auto& one : done) one.get();
  EXPECT_LT(high_at.load(), 95);
}

TEST_F(ExecuteTest, AnUploadResumesWhereItWasCut) {
  Wire wire(daemon_.target());
  const std::string session(session_.id().bytes());
  const std::string buffer = wire.CreateBuffer(session, 3 << 20);
  std::string bytes(3 << 20, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  {
    grpc::ClientContext context;
    v1::UploadResponse response;
    auto upload = wire.buffers().Upload(&context, &response);
    ASSERT_TRUE(upload->Write(Chunk(session, buffer, 0, bytes.substr(0, 1 << 20))));
    ASSERT_TRUE(
        WaitUntil([&] { return wire.GetBuffer(session, buffer).committed_bytes() == 1 << 20; }));
    context.TryCancel();
    upload->Finish();
  }
  const int64_t committed = wire.GetBuffer(session, buffer).committed_bytes();
  ASSERT_EQ(committed, 1 << 20);
  // The server may take a moment to see the cut: ABORTED until then.
  grpc::Status resumed;
  ASSERT_TRUE(WaitUntil([&] {
    resumed = wire.Upload({Chunk(session, buffer, committed, bytes.substr(committed, 1 << 20)),
                           Chunk("", "", 2 << 20, bytes.substr(2 << 20))});
    return resumed.error_code() != grpc::StatusCode::ABORTED;
  }));
  ASSERT_TRUE(resumed.ok()) << resumed.error_message();
  client::Buffer attached = Must(session_.AttachBuffer(Must(client::Handle::FromBytes(buffer))));
  std::string back(bytes.size(), '\0');
  Must(
      attached.Download(absl::MakeSpan(back), 0, {.route = client::TransferOptions::Route::kGrpc}));
  EXPECT_TRUE(back == bytes);
}

// Those behind it are read ahead while it is checked; none of them may count.
TEST_F(ExecuteTest, AWrongChunkEndsAnUploadWhateverIsBehindIt) {
  constexpr int64_t kChunk = 16 << 10;
  constexpr int kChunks = 12;
  Wire wire(daemon_.target());
  const std::string session(session_.id().bytes());
  const std::string buffer = wire.CreateBuffer(session, kChunks * kChunk);
  const auto chunks_from = [&](int first, char fill) {
    std::vector<v1::UploadRequest> chunks;
    for (int i = first; i < kChunks; ++i) {
      chunks.push_back(Chunk(i == first ? session : "", i == first ? buffer : "", i * kChunk,
                             std::string(kChunk, static_cast<char>(fill + i))));
    }
    return chunks;
  };
  for (int wrong = 0; wrong < kChunks; ++wrong) {
    std::vector<v1::UploadRequest> chunks = chunks_from(0, 'A');
    chunks[wrong].mutable_data()->back() ^= 1;
    EXPECT_EQ(wire.Upload(chunks).error_code(), grpc::StatusCode::DATA_LOSS);
    const int64_t committed = wire.GetBuffer(session, buffer).committed_bytes();
    EXPECT_EQ(committed, wrong * kChunk);
    const grpc::Status resumed = wire.Upload(chunks_from(wrong, 'a'));
    ASSERT_TRUE(resumed.ok()) << resumed.error_message();
    v1::ExecuteResponse read;
    const grpc::Status status =
        wire.Execute(session, {ReadOp(View(buffer, {kChunks * kChunk}, v1::DTYPE_I8))}, &read);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (int i = 0; i < kChunks; ++i) {
      EXPECT_EQ(read.outputs(0).data()[i * kChunk], (i < wrong ? 'A' : 'a') + i) << wrong;
    }
  }
}

}  // namespace
}  // namespace gemmd::e2e
