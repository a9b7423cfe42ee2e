#include "bench/floor/echo_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <chrono>
#include <semaphore>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/floor/echo.grpc.pb.h"

namespace gemmd::bench {
namespace {

absl::Status Failed(absl::string_view what, const grpc::Status& status) {
  return absl::InternalError(
      absl::StrCat("the echo peer's ", what, " failed: ", status.error_message()));
}

}  // namespace

struct EchoClient::State {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<echo::Echo::Stub> stub;
};

// The client library's arguments: message limits and a connection of its own.
EchoClient::EchoClient(const std::string& target) : state_(std::make_unique<State>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  state_->channel =
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  state_->stub = echo::Echo::NewStub(state_->channel);
}

EchoClient::~EchoClient() = default;

absl::Status EchoClient::Unary(int64_t bytes, int64_t reply_bytes) {
  echo::Message request, response;
  request.mutable_data()->assign(bytes, 'x');
  request.set_reply_bytes(reply_bytes);
  grpc::ClientContext context;
  grpc::Status status = state_->stub->Unary(&context, request, &response);
  return status.ok() ? absl::OkStatus() : Failed("unary call", status);
}

absl::StatusOr<double> EchoClient::StreamRate(int64_t bytes, int depth, absl::Duration duration) {
  grpc::ClientContext context;
  auto stream = state_->stub->Stream(&context);
  std::counting_semaphore<> credits(depth);
  int64_t answered = 0;
  const absl::Time start = absl::Now();
  std::thread reader([&] {
    echo::Message response;
    while (stream->Read(&response)) {
      ++answered;
      credits.release();
    }
    credits.release(depth);  // a broken stream must not leave the writer waiting
  });
  echo::Message request;
  request.mutable_data()->assign(bytes, 'x');
  while (absl::Now() - start < duration) {
    credits.acquire();
    if (!stream->Write(request)) break;
  }
  stream->WritesDone();
  reader.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  grpc::Status status = stream->Finish();
  if (!status.ok()) return Failed("stream", status);
  return static_cast<double>(answered) / seconds;
}

absl::StatusOr<double> EchoClient::SinkRate(absl::string_view data, int64_t chunk_bytes) {
  grpc::GenericStub stub(state_->channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(&context, "/gemmd.bench.echo.Echo/Sink", &queue);
  int tag = 0;
  const auto wait = [&] {
    void* done = nullptr;
    bool ok = false;
    return queue.Next(&done, &ok) && ok;
  };
  const absl::Time start = absl::Now();
  call->StartCall(&tag);
  bool ok = wait();
  for (size_t at = 0; ok && at < data.size(); at += chunk_bytes) {
    const size_t length = std::min<size_t>(chunk_bytes, data.size() - at);
    grpc::Slice slice(data.data() + at, length, grpc::Slice::STATIC_SLICE);
    call->Write(grpc::ByteBuffer(&slice, 1), &tag);
    ok = wait();
  }
  if (ok) {
    call->WritesDone(&tag);
    ok = wait();
  }
  grpc::ByteBuffer response;
  if (ok) {
    call->Read(&response, &tag);
    ok = wait();
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  grpc::Status status;
  call->Finish(&status, &tag);
  wait();
  if (!status.ok() || !ok) return Failed("sink", status);
  return static_cast<double>(data.size()) / seconds;
}

}  // namespace gemmd::bench
