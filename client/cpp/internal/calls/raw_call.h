// Blocking calls whose messages are bytes rather than protobuf objects: ops that were encoded
// before, upload chunks that stay in the caller's memory, download chunks that are copied straight
// to where they belong. These are the calls that gRPC's generated stubs are made of (the public
// generic stub has no blocking ones), gathered here because their names say `internal`.

#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <memory>

#include "absl/strings/string_view.h"

namespace gemmd::client {

inline constexpr char kExecuteMethod[] = "/gemmd.v1.ComputeService/Execute";
inline constexpr char kRunPlanMethod[] = "/gemmd.v1.ComputeService/RunPlan";
inline constexpr char kCreatePlanMethod[] = "/gemmd.v1.ComputeService/CreatePlan";
inline constexpr char kQueueMethod[] = "/gemmd.v1.ComputeService/Queue";
inline constexpr char kUploadMethod[] = "/gemmd.v1.BufferService/Upload";
inline constexpr char kDownloadMethod[] = "/gemmd.v1.BufferService/Download";
inline constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";

// One slice with a copy of `bytes`.
inline grpc::ByteBuffer ToByteBuffer(absl::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

// `Response` is a protobuf message or a ByteBuffer.
template <typename Response, typename Base = google::protobuf::MessageLite>
grpc::Status RawUnary(grpc::Channel& channel, const char* method, grpc::ClientContext& context,
                      const grpc::ByteBuffer& request, Response& response) {
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
  return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, Response, grpc::ByteBuffer, Base>(
      &channel, rpc, &context, request, &response);
}

// `response` is filled in by Finish.
inline std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> RawClientStream(
    grpc::Channel& channel, const char* method, grpc::ClientContext& context,
    google::protobuf::MessageLite* response) {
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::CLIENT_STREAMING);
  return std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>>(
      grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(&channel, rpc, &context,
                                                                    response));
}

inline std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> RawServerStream(
    grpc::Channel& channel, const char* method, grpc::ClientContext& context,
    const grpc::ByteBuffer& request) {
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::SERVER_STREAMING);
  return std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>>(
      grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(&channel, rpc, &context,
                                                                    request));
}

}  // namespace gemmd::client
