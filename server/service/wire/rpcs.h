// Rpcs: a service of the wire, made of functions that do the work of its RPCs. An RPC is known by
// its request's type. All take bytes (message.h): who calls is judged first, and what is no message
// is refused, counted and logged as any bad input.
//
//   absl::Status ListDevices(Call&, const v1::ListDevicesRequest&, v1::ListDevicesResponse*);
//   auto rpcs = std::make_unique<Rpcs<v1::DeviceService>>(context);
//   rpcs->Serve(ListDevices);

#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "server/service/wire/call.h"
#include "server/service/wire/message.h"

namespace gemmd::server {

// A unary call and the answer in the making. Finish exactly once, from any thread.
template <typename Response>
class PendingCall {
 public:
  PendingCall(Method& method, grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes)
      : call_(std::in_place, method, context), reactor_(context->DefaultReactor()), bytes_(bytes) {}

  Call& call() { return *call_; }  // until Finish
  Response* response() { return &response_; }
  grpc::ServerUnaryReactor* reactor() { return reactor_; }  // gRPC's to have back

  void Finish(const absl::Status& status) {
    if (status.ok()) *bytes_ = WriteMessage(response_);
    reactor_->Finish(call_->Finish(status));
    call_.reset();  // no longer live, however long somebody keeps this
  }

 private:
  std::optional<Call> call_;
  grpc::ServerUnaryReactor* const reactor_;
  grpc::ByteBuffer* const bytes_;
  Response response_;
};

// `Generated` is what the proto file's service became: v1::DeviceService.
template <typename Generated>
class Rpcs final : public Generated::Service {
 public:
  using Context = grpc::CallbackServerContext;

  explicit Rpcs(ServiceContext& context) : context_(context) {}

  // Answered when `work` returns.
  template <typename Request, typename Response>
  void Serve(absl::Status (*work)(Call&, const Request&, Response*)) {
    ServeBytes<Request>([work](Method& method, Context* context, const grpc::ByteBuffer& bytes,
                               grpc::ByteBuffer* reply) {
      PendingCall<Response> call(method, context, reply);
      Request request;
      absl::Status status = call.call().Read(bytes, request);
      if (status.ok()) status = work(call.call(), request, call.response());
      call.Finish(status);
      return call.reactor();
    });
  }

  // Answered by `work`'s Finish, which may come later than its end.
  template <typename Request, typename Response>
  void Serve(void (*work)(std::shared_ptr<PendingCall<Response>>, const Request&)) {
    ServeBytes<Request>([work](Method& method, Context* context, const grpc::ByteBuffer& bytes,
                               grpc::ByteBuffer* reply) {
      const auto call = std::make_shared<PendingCall<Response>>(method, context, reply);
      Request request;
      if (absl::Status read = call->call().Read(bytes, request); read.ok()) {
        work(call, request);
      } else {
        call->Finish(read);
      }
      return call->reactor();
    });
  }

  // For those that read and write their bytes themselves. `work` gives gRPC its reactor:
  // (Method&, Context*, const grpc::ByteBuffer& request, grpc::ByteBuffer* response).
  template <typename Request, typename Work>
  void ServeBytes(Work work) {
    const Rpc rpc = Add<Request>();
    Mark(rpc,
         new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [&method = rpc.method, work = std::move(work)](
                 Context* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
               return work(method, context, *request, response);
             }));
  }
  // Streams of requests: (Method&, Context*, grpc::ByteBuffer* response).
  template <typename Request, typename Work>
  void ServeReader(Work work) {
    const Rpc rpc = Add<Request>();
    Mark(rpc,
         new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [&method = rpc.method, work](Context* context, grpc::ByteBuffer* response) {
               return work(method, context, response);
             }));
  }
  // Streams of responses: (Method&, Context*, const grpc::ByteBuffer& request).
  template <typename Request, typename Response, typename Work>
  void ServeWriter(Work work) {
    const Rpc rpc = Add<Request>();
    Mark(rpc, new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, Response>(
                  [&method = rpc.method, work](Context* context, const grpc::ByteBuffer* request) {
                    return work(method, context, *request);
                  }));
  }
  // Both: (Method&, Context*).
  template <typename Request, typename Response, typename Work>
  void ServeBidi(Work work) {
    const Rpc rpc = Add<Request>();
    Mark(rpc,
         new grpc::internal::CallbackBidiHandler<MaybeMessage<Request>, Response>(
             [&method = rpc.method, work](Context* context) { return work(method, context); }));
  }

 private:
  struct Rpc {
    Method& method;
    int index;  // in its service
  };

  template <typename Request>
  Rpc Add() {
    const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
    const auto& service = *pool.FindServiceByName(Generated::service_full_name());
    int index = 0;
    while (service.method(index)->input_type() != Request::descriptor()) ++index;
    return {methods_.emplace_back(context_, service.name(), service.method(index)->name()), index};
  }
  // As the generated code does.
  void Mark(const Rpc& rpc, grpc::internal::MethodHandler* handler) {
    this->MarkMethodRawCallback(rpc.index, handler);
  }

  ServiceContext& context_;
  std::deque<Method> methods_;  // where they are handlers refer to them
};

}  // namespace gemmd::server
