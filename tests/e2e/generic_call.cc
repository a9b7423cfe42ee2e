#include "tests/e2e/generic_call.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>

namespace gemmd::e2e {
namespace {

// The end of the one step that is under way.
bool Step(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

}  // namespace

Answered CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& request, const Metadata& metadata) {
  return CallByName(channel, method, std::vector<std::string>{request}, metadata);
}

Answered CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::vector<std::string>& requests, const Metadata& metadata) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  Answered answered;
  call->StartCall(nullptr);
  if (Step(queue)) {
    // A server that has refused already takes no more; Finish says what it said.
    for (const std::string& request : requests) {
      const grpc::Slice slice(request.data(), request.size());
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      if (!Step(queue)) break;
    }
    call->WritesDone(nullptr);
    Step(queue);
    grpc::ByteBuffer response;
    for (call->Read(&response, nullptr); Step(queue); call->Read(&response, nullptr)) {
      answered.responses.push_back(Bytes(response));
    }
  }
  call->Finish(&answered.status, nullptr);
  Step(queue);
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    answered.trailing.emplace_back(std::string(key.data(), key.size()),
                                   std::string(value.data(), value.size()));
    if (answered.trailing.back().first == "gemmd-reason") {
      answered.reason = answered.trailing.back().second;
    }
  }
  return answered;
}

}  // namespace gemmd::e2e
