// One tenant's best try at the host's memory, with small limits: plans, unread results and
// downloads, requests that are never finished, names, buffers, sessions, answers remembered for
// retries, all at once. The daemon's resident memory stays under what docs/operations.md says,
// "Host memory", and comes near it: a formula that promised too much would be of no use.

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"
#include "tests/hostile/hoards.h"

namespace gemmd::e2e {
namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

struct Limits {
  int64_t received_bytes = 64 * kMiB;
  int64_t buffer_bytes = 32 * kMiB;
  int64_t host_bytes = 64 * kMiB;
  int64_t message_bytes = kMiB;
  int64_t sessions = 32;
  int64_t buffers = 4000;
  int64_t streams = 24;

  // With GEMMD_DEFAULT_LIMITS set: those of a daemon that is told none but of its buffers and of
  // what it may receive.
  static Limits FromEnvironment() {
    if (std::getenv("GEMMD_DEFAULT_LIMITS") == nullptr) return {};
    return {.received_bytes = 256 * kMiB,
            .host_bytes = int64_t{1} << 30,
            .message_bytes = 4 * kMiB,
            .sessions = 256,
            .buffers = 65536,
            .streams = 512};
  }

  std::string Config() const {
    return absl::StrCat("limits { max_buffer_bytes: ", buffer_bytes,
                        " max_host_bytes: ", host_bytes, " max_message_bytes: ", message_bytes,
                        " max_sessions: ", sessions, " max_buffers: ", buffers,
                        " max_streams: ", streams,
                        " } connections { max_received_bytes: ", received_bytes, " }");
  }
  // docs/operations.md, "Host memory", with one tenant.
  int64_t HostMemory() const {
    return received_bytes + buffer_bytes + host_bytes + streams * message_bytes +
           sessions * 64 * kKiB + buffers * 2 * kKiB;
  }
  // The largest result of a program, and a little less.
  int64_t ResultBytes() const { return message_bytes - message_bytes / 64 - 4 * kKiB; }
};

class MemoryTest : public testing::Test {
 protected:
  MemoryTest()
      : daemon_({.config = limits_.Config()}),
        wire_(daemon_.target()),
        session_(wire_.OpenSession()),
        buffer_(wire_.CreateBuffer(session_, kBufferBytes)) {}
  int64_t Resident() { return UseOf(daemon_.process().pid()).resident_bytes; }

  // Until they are refused.
  int MakePlans(const std::vector<v1::Op>& ops) {
    for (int made = 0; made < 5000; ++made) {
      grpc::ClientContext context;
      v1::CreatePlanRequest request;
      request.set_session_id(session_);
      for (const v1::Op& op : ops) *request.add_ops() = op;
      v1::Plan plan;
      if (!wire_.compute().CreatePlan(&context, request, &plan).ok()) return made;
    }
    return 5000;
  }
  void FillSessionsAndBuffers() {
    for (int i = 0; i < 2 * limits_.sessions; ++i) {
      grpc::ClientContext context;
      v1::OpenSessionRequest request;
      request.set_label(std::string(60, 'l'));
      v1::OpenSessionResponse response;
      if (!wire_.sessions().OpenSession(&context, request, &response).ok()) break;
    }
    for (int i = 0; i < 2 * limits_.buffers; ++i) {
      grpc::ClientContext creating, publishing;
      v1::CreateBufferRequest request;
      request.set_session_id(session_);
      request.set_size_bytes(1);
      v1::Buffer buffer;
      if (!wire_.buffers().CreateBuffer(&creating, request, &buffer).ok()) break;
      v1::PublishBufferRequest publish;
      publish.set_session_id(session_);
      publish.set_buffer_id(buffer.buffer_id());
      publish.set_name(absl::StrCat(std::string(100, 'n'), i));
      v1::PublishBufferResponse published;
      wire_.buffers().PublishBuffer(&publishing, publish, &published);
    }
  }
  // Answers that a retry would get again.
  void Remember(int runs) {
    for (int i = 0; i < runs; ++i) {
      grpc::ClientContext context;
      v1::ExecuteRequest request;
      request.set_session_id(session_);
      request.set_op_id(absl::StrCat("run", i));
      *request.add_ops() = ReadOp(View(buffer_, {512 * kKiB}, v1::DTYPE_I8));
      v1::ExecuteResponse response;
      wire_.compute().Execute(&context, request, &response);
    }
  }

  // Nearly all that buffers may take: the small ones need some, too.
  static constexpr int64_t kBufferBytes = 24 * kMiB;
  const Limits limits_ = Limits::FromEnvironment();
  Daemon daemon_;
  Wire wire_;
  std::string session_;
  std::string buffer_;
};

TEST_F(MemoryTest, OneTenantsBestTryComesNearTheFormulaAndStaysUnderIt) {
  const int64_t before = Resident();
  // Its pages are there once they were written.
  ASSERT_TRUE(wire_.Execute(session_, {FillOp(View(buffer_, {kBufferBytes / 4}), 1)}).ok());
  FillSessionsAndBuffers();
  Remember(200);
  const int64_t result = limits_.ResultBytes();
  const v1::Op read = ReadOp(View(buffer_, {result}, v1::DTYPE_I8));
  v1::Batch batch;
  *batch.add_ops() = read;
  // A few Queues hold a window's results each; a Download's chunk is not charged to anything.
  const int queue_count = static_cast<int>(limits_.streams / 8);
  auto queues =
      std::make_unique<hostile::UnreadQueues>(daemon_.target(), session_, queue_count, batch);
  auto downloads = std::make_unique<hostile::UnreadDownloads>(
      daemon_.target(), session_, buffer_, static_cast<int>(limits_.streams) - queue_count);
  WaitUntil(
      [&] { return daemon_.Metric("gemmd_streams") >= static_cast<double>(limits_.streams); });
  v1::ExecuteRequest request;
  request.set_session_id(session_);
  *request.add_ops() = read;
  auto calls = std::make_unique<hostile::UnreadCalls>(daemon_.target(), request, 300);
  // What those leave of the tenant's host memory, plans take.
  WaitUntil([&] { return daemon_.Metric("gemmd_ops_total", "op=\"read\"") >= 300; },
            absl::Seconds(10));
  const std::string data(static_cast<size_t>(result), 'd');
  const int with_data = MakePlans({WriteOp(View(buffer_, {result}, v1::DTYPE_I8), data)});
  const int of_ops = MakePlans(std::vector<v1::Op>(4096, FillOp(View(buffer_, {1}), 1)));
  const int small = MakePlans({FillOp(View(buffer_, {1}), 1)});
  // As much as leaves the calls above alone: gRPC cancels some when it holds more.
  const auto unfinished = std::make_unique<hostile::UnfinishedCalls>(
      daemon_.target(), static_cast<int>(limits_.received_bytes * 9 / 10 / limits_.message_bytes),
      limits_.message_bytes);
  const double limit = static_cast<double>(limits_.HostMemory());
  int64_t grown = 0;
  // A busy machine's daemon is at its part of it for a while yet.
  WaitUntil([&] {
    grown = std::max(grown, Resident() - before);
    return static_cast<double>(grown) >= 0.8 * limit;
  });
  const double ratio = static_cast<double>(grown) / limit;
  std::printf(
      "%d plans with data, %d of many ops, %d small; %g MiB charged, %lld MiB unfinished; resident "
      "+%lld MiB, by the formula at most %lld MiB: %.2f of it\n",
      with_data, of_ops, small,
      daemon_.Metric("gemmd_tenant_host_bytes", "tenant=\"default\"") / kMiB,
      static_cast<long long>(unfinished->sent_bytes() / kMiB), static_cast<long long>(grown / kMiB),
      static_cast<long long>(limit / kMiB), ratio);
  EXPECT_LE(ratio, 1.1);
  EXPECT_GE(ratio, 0.8);
  // Once those who would not read are gone, it serves the tenant again.
  queues.reset();
  downloads.reset();
  calls.reset();
  EXPECT_TRUE(
      WaitUntil([&] { return wire_.Execute(session_, {FillOp(View(buffer_, {16}), 1)}).ok(); }));
}

}  // namespace
}  // namespace gemmd::e2e
