#include "client/cpp/polled_call.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "absl/time/clock.h"
#include "client/cpp/raw_call.h"

namespace gemmd::client {
namespace {

// Until the one operation of `queue` is done.
void Await(grpc::CompletionQueue& queue, absl::Duration busy_poll) {
  void* tag = nullptr;
  bool ok = false;
  const gpr_timespec now = gpr_time_0(GPR_CLOCK_MONOTONIC);  // past: looks once
  const absl::Time sleep_at = absl::Now() + busy_poll;
  do {
    if (queue.AsyncNext(&tag, &ok, now) == grpc::CompletionQueue::GOT_EVENT) return;
  } while (absl::Now() < sleep_at);
  queue.Next(&tag, &ok);
}

}  // namespace

grpc::Status PolledUnary(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                         grpc::ClientContext& context, const grpc::ByteBuffer& request,
                         v1::ExecuteResponse& response, absl::Duration busy_poll) {
  if (busy_poll <= absl::ZeroDuration()) {
    return RawUnary(*channel, method, context, request, response);
  }
  grpc::CompletionQueue queue;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::ExecuteResponse> stub(channel);
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  Await(queue, busy_poll);
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

}  // namespace gemmd::client
