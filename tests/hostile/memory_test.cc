// One tenant's best try at the host's memory, with small limits: plans, unread results, uploads,
// names, buffers, sessions, answers remembered for retries, all at once. The daemon's resident
// memory stays under what docs/operations.md says, "Sizing".

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

struct Limits {
  int64_t buffer_bytes = 32 * kMiB;
  int64_t host_bytes = 64 * kMiB;
  int64_t message_bytes = kMiB;
  int64_t sessions = 32;
  int64_t buffers = 4000;
  int64_t streams = 24;

  // With GEMMD_DEFAULT_LIMITS set: those of a daemon that is told none but of its buffers.
  static Limits FromEnvironment() {
    if (std::getenv("GEMMD_DEFAULT_LIMITS") == nullptr) return {};
    return {.host_bytes = int64_t{1} << 30,
            .message_bytes = 4 * kMiB,
            .sessions = 256,
            .buffers = 65536,
            .streams = 512};
  }

  std::string Config() const {
    return absl::StrCat("limits { max_buffer_bytes: ", buffer_bytes,
                        " max_host_bytes: ", host_bytes, " max_message_bytes: ", message_bytes,
                        " max_sessions: ", sessions, " max_buffers: ", buffers,
                        " max_streams: ", streams, " }");
  }
  // docs/operations.md, "Sizing".
  int64_t HostMemory() const {
    return buffer_bytes + host_bytes + streams * 2 * message_bytes + sessions * 64 * kKiB +
           buffers * 2 * kKiB;
  }
};

class MemoryTest : public testing::Test {
 protected:
  MemoryTest()
      : daemon_({.config = limits_.Config()}),
        wire_(daemon_.target()),
        session_(wire_.OpenSession()),
        buffer_(wire_.CreateBuffer(session_, 16 * kMiB)) {
    // Its pages count among the buffers' from the beginning.
    EXPECT_TRUE(wire_.Execute(session_, {FillOp(View(buffer_, {4 * kMiB}), 1)}).ok());
  }
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

  const Limits limits_ = Limits::FromEnvironment();
  Daemon daemon_;
  Wire wire_;
  std::string session_;
  std::string buffer_;
};

// Queues that are written to and never read.
class UnreadQueues {
 public:
  UnreadQueues(const std::string& target, const std::string& session, int count,
               const v1::Batch& batch) {
    for (int i = 0; i < count; ++i) {
      wires_.push_back(std::make_unique<Wire>(target));
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      streams_.push_back(wires_.back()->compute().Queue(contexts_.back().get()));
      threads_.emplace_back([stream = streams_.back().get(), session, batch] {
        v1::QueueRequest request;
        request.mutable_open()->set_session_id(session);
        bool open = stream->Write(request);
        *request.mutable_batch() = batch;
        for (int64_t sequence = 1; open && sequence <= 64; ++sequence) {
          request.mutable_batch()->set_sequence(sequence);
          open = stream->Write(request);  // waits while the server takes nothing
        }
      });
    }
  }
  ~UnreadQueues() {
    for (auto& context : contexts_) context->TryCancel();
    for (std::thread& thread : threads_) thread.join();
    for (auto& stream : streams_) stream->Finish();
  }

 private:
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::QueueRequest, v1::QueueResponse>>>
      streams_;
  std::vector<std::thread> threads_;
};

// Executes whose answers stay on the way: nobody looks at their completion queue.
class UnreadCalls {
 public:
  UnreadCalls(const std::string& target, const v1::ExecuteRequest& request, int count)
      : wire_(target) {
    for (int i = 0; i < count; ++i) {
      calls_.push_back(std::make_unique<Call>());
      Call& call = *calls_.back();
      call.reader = wire_.compute().AsyncExecute(&call.context, request, &queue_);
      call.reader->Finish(&call.response, &call.status, &call);
    }
  }
  ~UnreadCalls() {
    for (auto& call : calls_) call->context.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    for (size_t i = 0; i < calls_.size(); ++i) queue_.Next(&tag, &ok);
    queue_.Shutdown();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ExecuteResponse>> reader;
    v1::ExecuteResponse response;
    grpc::Status status;
  };
  Wire wire_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST_F(MemoryTest, OneTenantsBestTryStaysUnderTheFormula) {
  const int64_t before = Resident();
  FillSessionsAndBuffers();
  Remember(200);
  const std::string data(900 * kKiB, 'd');
  v1::Batch batch;
  *batch.add_ops() = WriteOp(View(buffer_, {400 * kKiB}, v1::DTYPE_I8), data.substr(0, 400 * kKiB));
  *batch.add_ops() = ReadOp(View(buffer_, {900 * kKiB}, v1::DTYPE_I8));
  auto queues = std::make_unique<UnreadQueues>(daemon_.target(), session_,
                                               static_cast<int>(limits_.streams) / 2, batch);
  v1::ExecuteRequest request;
  request.set_session_id(session_);
  *request.add_ops() = ReadOp(View(buffer_, {900 * kKiB}, v1::DTYPE_I8));
  auto calls = std::make_unique<UnreadCalls>(daemon_.target(), request, 300);
  // What those leave of the tenant's host memory, plans take.
  WaitUntil([&] { return daemon_.Metric("gemmd_ops_total", "op=\"read\"") >= 300; },
            absl::Seconds(10));
  const int with_data = MakePlans({WriteOp(View(buffer_, {900 * kKiB}, v1::DTYPE_I8), data)});
  const int of_ops = MakePlans(std::vector<v1::Op>(4096, FillOp(View(buffer_, {1}), 1)));
  const int small = MakePlans({FillOp(View(buffer_, {1}), 1)});
  const int64_t grown = Resident() - before;
  const double limit = static_cast<double>(limits_.HostMemory());
  std::printf(
      "%d plans with data, %d of many ops, %d small; %g MiB charged; resident +%lld MiB, "
      "by the formula at most %lld MiB\n",
      with_data, of_ops, small,
      daemon_.Metric("gemmd_tenant_host_bytes", "tenant=\"default\"") / kMiB,
      static_cast<long long>(grown / kMiB), static_cast<long long>(limit / kMiB));
  EXPECT_LE(static_cast<double>(grown), 1.1 * limit);
  // Once those who would not read are gone, it serves the tenant again.
  queues.reset();
  calls.reset();
  EXPECT_TRUE(
      WaitUntil([&] { return wire_.Execute(session_, {FillOp(View(buffer_, {16}), 1)}).ok(); }));
}

}  // namespace
}  // namespace gemmd::e2e
