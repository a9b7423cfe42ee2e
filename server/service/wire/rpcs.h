// Rpcs: ties the RPCs of a service to the functions that do their work. All take bytes (message.h):
// who calls is judged first, and what is no message is refused, counted and logged as any bad
// input.
//
//   Rpcs<v1::DeviceService> rpcs_;
//   rpcs_.Serve(info_, this, &DeviceService::GetServerInfo);
//   absl::Status DeviceService::GetServerInfo(Call&, const v1::GetServerInfoRequest&,
//                                             v1::ServerInfo*);

#ifndef GEMMD_SERVER_SERVICE_WIRE_RPCS_H_
#define GEMMD_SERVER_SERVICE_WIRE_RPCS_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
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

  // Answered when `work` returns.
  template <typename Service, typename Request, typename Response>
  void Serve(Method& method, Service* service,
             absl::Status (Service::*work)(Call&, const Request&, Response*)) {
    ServeBytes(method, [=, &method](Context* context, const auto* bytes, auto* reply) {
      PendingCall<Response> call(method, context, reply);
      Request request;
      absl::Status status = call.call().Read(*bytes, request);
      if (status.ok()) status = (service->*work)(call.call(), request, call.response());
      call.Finish(status);
      return call.reactor();
    });
  }

  // Answered by `work`'s Finish, which may come later than its end.
  template <typename Service, typename Request, typename Response>
  void Serve(Method& method, Service* service,
             void (Service::*work)(std::shared_ptr<PendingCall<Response>>, const Request&)) {
    ServeBytes(method, [=, &method](Context* context, const auto* bytes, auto* reply) {
      const auto call = std::make_shared<PendingCall<Response>>(method, context, reply);
      Request request;
      if (absl::Status read = call->call().Read(*bytes, request); read.ok()) {
        (service->*work)(call, request);
      } else {
        call->Finish(read);
      }
      return call->reactor();
    });
  }

  // For those that read and write their bytes themselves.
  using Unary = std::function<grpc::ServerUnaryReactor*(Context*, const grpc::ByteBuffer*,
                                                        grpc::ByteBuffer*)>;
  void ServeBytes(const Method& method, Unary work) {
    Mark(method, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                     std::move(work)));
  }
  using Reader =
      std::function<grpc::ServerReadReactor<grpc::ByteBuffer>*(Context*, grpc::ByteBuffer*)>;
  void ServeReader(const Method& method, Reader work) {
    Mark(method,
         new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             std::move(work)));
  }
  template <typename Response>
  void ServeWriter(
      const Method& method,
      std::function<grpc::ServerWriteReactor<Response>*(Context*, const grpc::ByteBuffer*)> work) {
    Mark(method, new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, Response>(
                     std::move(work)));
  }
  template <typename Request, typename Response>
  void ServeBidi(
      const Method& method,
      std::function<grpc::ServerBidiReactor<MaybeMessage<Request>, Response>*(Context*)> work) {
    Mark(method,
         new grpc::internal::CallbackBidiHandler<MaybeMessage<Request>, Response>(std::move(work)));
  }

 private:
  void Mark(const Method& method, grpc::internal::MethodHandler* handler) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        Generated::service_full_name());
    // As the generated code does, by the RPC's place in its service.
    this->MarkMethodRawCallback(service->FindMethodByName(method.name())->index(), handler);
  }
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_WIRE_RPCS_H_
