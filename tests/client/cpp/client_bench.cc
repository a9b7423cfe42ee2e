// What the client adds to gRPC: Session::Execute against the generated stub's Execute, and Queue
// against a bare stream of the same messages, both on a server in this process that answers at
// once.
//
//   build/cpu/tests/client/cpp/client_bench
//
// Prints medians over rounds that alternate between the two, so that both see the same machine.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gemmd/v1/session_service.grpc.pb.h"

namespace gemmd::client {
namespace {

constexpr int kRounds = 7;
constexpr int kCalls = 3000;
constexpr int kBatches = 20000;
constexpr int kWindow = 64;

class Sessions final : public v1::SessionService::Service {
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*,
                           v1::OpenSessionResponse* response) override {
    response->set_session_id("0123456789abcdef");
    return grpc::Status::OK;
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest*,
                            v1::CloseSessionResponse*) override {
    return grpc::Status::OK;
  }
};

// Completes every batch as it comes.
class Echo final : public grpc::ServerBidiReactor<v1::QueueRequest, v1::QueueResponse> {
 public:
  Echo() { StartRead(&request_); }

 private:
  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    if (!ok) {
      ended_ = true;
      if (!writing_) Finish(grpc::Status::OK);
      return;
    }
    v1::QueueResponse& response = waiting_.emplace_back();
    if (request_.has_open()) {
      response.mutable_opened()->set_window_batches(kWindow);
      response.mutable_opened()->set_window_bytes(1 << 20);
    } else {
      response.mutable_completions()->add_items()->set_sequence(request_.batch().sequence());
    }
    if (!writing_) Send();
    StartRead(&request_);
  }
  void OnWriteDone(bool) override {
    absl::MutexLock lock(&mu_);
    Send();
    if (!writing_ && ended_) Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  void Send() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = !waiting_.empty();
    if (!writing_) return;
    response_.Swap(&waiting_.front());
    waiting_.pop_front();
    StartWrite(&response_);
  }

  v1::QueueRequest request_;
  absl::Mutex mu_;
  v1::QueueResponse response_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::QueueResponse> waiting_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

class Compute final : public v1::ComputeService::CallbackService {
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context, const v1::ExecuteRequest*,
                                    v1::ExecuteResponse* response) override {
    v1::OpReport* report = response->mutable_report()->add_ops();
    report->set_op("matmul");
    report->set_kernel("cpu_f32");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerBidiReactor<v1::QueueRequest, v1::QueueResponse>* Queue(
      grpc::CallbackServerContext*) override {
    return new Echo();
  }
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Seconds a call.
template <typename Call>
double Timed(int calls, Call call) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < calls; ++i) call();
  return absl::ToDoubleSeconds(absl::Now() - start) / calls;
}

OpList TinyMatmul() {
  const Handle handle = *Handle::FromBytes("fedcba9876543210");
  OpList ops;
  ops.Add(Matmul{.a = Tensor(handle, DType::kF32, {16, 16}),
                 .b = Tensor(handle, DType::kF32, {16, 16}, 1024),
                 .d = Tensor(handle, DType::kF32, {16, 16}, 2048)});
  return ops;
}

void BenchExecute(const std::string& target, Session& session) {
  const auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  const auto stub = v1::ComputeService::NewStub(channel);
  const OpList ops = TinyMatmul();
  v1::ExecuteRequest request;
  request.ParseFromString(std::string(ops.wire()));
  request.set_session_id("0123456789abcdef");
  request.set_op_id("0123456789abcdef");
  std::vector<double> bare, ours;
  for (int round = 0; round < kRounds; ++round) {
    v1::ExecuteResponse response;
    bare.push_back(Timed(kCalls, [&] {
      grpc::ClientContext context;
      stub->Execute(&context, request, &response);
    }));
    ours.push_back(Timed(kCalls, [&] { (void)session.Execute(ops); }));
  }
  std::printf("%-32s execute: stub %6.1f us, client %6.1f us, %+.1f %%\n", target.c_str(),
              1e6 * Median(bare), 1e6 * Median(ours), 100 * (Median(ours) / Median(bare) - 1));
}

// Messages a second of the generated stub, one thread writing and one reading.
double BareStream(v1::ComputeService::Stub& stub, const OpList& ops) {
  v1::QueueRequest request;
  request.mutable_batch()->ParseFromString(std::string(ops.wire()));
  grpc::ClientContext context;
  const auto stream = stub.Queue(&context);
  absl::Mutex mu;
  int in_flight = 0;
  std::thread reader([&] {
    v1::QueueResponse response;
    for (int i = 0; i < kBatches; ++i) {
      if (!stream->Read(&response)) return;
      absl::MutexLock lock(&mu);
      --in_flight;
    }
  });
  const double seconds = Timed(1, [&] {
    for (int i = 0; i < kBatches; ++i) {
      {
        absl::MutexLock lock(&mu);
        mu.Await(absl::Condition(
            +[](int* count) { return *count < kWindow; }, &in_flight));
        ++in_flight;
      }
      request.mutable_batch()->set_sequence(i + 1);
      stream->Write(request);
    }
    reader.join();
  });
  stream->WritesDone();
  stream->Finish();
  return kBatches / seconds;
}

double OurQueue(Session& session, const OpList& ops) {
  Queue queue = *session.OpenQueue();
  std::deque<Ticket> tickets;
  const double seconds = Timed(1, [&] {
    for (int i = 0; i < kBatches; ++i) {
      if (tickets.size() == kWindow) {
        (void)tickets.front().Wait();
        tickets.pop_front();
      }
      tickets.push_back(*queue.Submit(ops));
    }
    (void)queue.Drain();
  });
  (void)queue.Close();
  return kBatches / seconds;
}

void BenchQueue(const std::string& target, Session& session) {
  const auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  const auto stub = v1::ComputeService::NewStub(channel);
  const OpList ops = TinyMatmul();
  std::vector<double> bare, ours;
  for (int round = 0; round < kRounds; ++round) {
    bare.push_back(BareStream(*stub, ops));
    ours.push_back(OurQueue(session, ops));
  }
  std::printf("%-32s queue: bare stream %7.0f/s, client %7.0f/s, %.2fx\n", target.c_str(),
              Median(bare), Median(ours), Median(ours) / Median(bare));
}

int Main() {
  Sessions sessions;
  Compute compute;
  grpc::ServerBuilder builder;
  int port = 0;
  const std::string socket = "unix-abstract:gemmd-client-bench";
  builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&sessions);
  builder.RegisterService(&compute);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  for (const std::string& target : {socket, "127.0.0.1:" + std::to_string(port)}) {
    absl::StatusOr<Client> client = Client::Connect(target);
    if (!client.ok()) return 1;
    Session session = *client->OpenSession({.liveness = SessionOptions::Liveness::kNone});
    BenchExecute(target, session);
    BenchQueue(target, session);
  }
  server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace gemmd::client

int main() { return gemmd::client::Main(); }
