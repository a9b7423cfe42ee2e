#include "tests/e2e/wire.h"

#include <isa-l/crc.h>

#include <cstdio>
#include <cstdlib>

namespace gemmd::e2e {
namespace {

void MustBeOk(const grpc::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.error_message().c_str());
  std::abort();
}

}  // namespace

Wire::Wire(const std::string& target) {
  // A connection of its own: channels with equal arguments would share one.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  channel_ = grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  sessions_ = v1::SessionService::NewStub(channel_);
  buffers_ = v1::BufferService::NewStub(channel_);
  compute_ = v1::ComputeService::NewStub(channel_);
  devices_ = v1::DeviceService::NewStub(channel_);
}

std::string Wire::OpenSession(const std::string& label) {
  grpc::ClientContext context;
  v1::OpenSessionRequest request;
  request.set_label(label);
  v1::OpenSessionResponse response;
  MustBeOk(sessions_->OpenSession(&context, request, &response), "OpenSession");
  return response.session_id();
}

grpc::Status Wire::CloseSession(const std::string& session) {
  grpc::ClientContext context;
  v1::CloseSessionRequest request;
  request.set_session_id(session);
  v1::CloseSessionResponse response;
  return sessions_->CloseSession(&context, request, &response);
}

std::string Wire::CreateBuffer(const std::string& session, int64_t size_bytes) {
  grpc::ClientContext context;
  v1::CreateBufferRequest request;
  request.set_session_id(session);
  request.set_size_bytes(size_bytes);
  v1::Buffer buffer;
  MustBeOk(buffers_->CreateBuffer(&context, request, &buffer), "CreateBuffer");
  return buffer.buffer_id();
}

v1::Buffer Wire::GetBuffer(const std::string& session, const std::string& buffer) {
  grpc::ClientContext context;
  v1::GetBufferRequest request;
  request.set_session_id(session);
  request.set_buffer_id(buffer);
  v1::Buffer response;
  MustBeOk(buffers_->GetBuffer(&context, request, &response), "GetBuffer");
  return response;
}

grpc::Status Wire::Execute(const std::string& session, const std::vector<v1::Op>& ops,
                           v1::ExecuteResponse* response) {
  grpc::ClientContext context;
  v1::ExecuteRequest request;
  request.set_session_id(session);
  for (const v1::Op& op : ops) *request.add_ops() = op;
  v1::ExecuteResponse unused;
  return compute_->Execute(&context, request, response != nullptr ? response : &unused);
}

grpc::Status Wire::Upload(const std::vector<v1::UploadRequest>& chunks,
                          v1::UploadResponse* response) {
  grpc::ClientContext context;
  v1::UploadResponse unused;
  auto writer = buffers_->Upload(&context, response != nullptr ? response : &unused);
  for (const v1::UploadRequest& chunk : chunks) {
    if (!writer->Write(chunk)) break;  // the server has answered already
  }
  writer->WritesDone();
  return writer->Finish();
}

v1::Tensor View(const std::string& buffer, const std::vector<int64_t>& shape, v1::DType dtype,
                int64_t offset_bytes, const std::vector<int64_t>& strides) {
  v1::Tensor tensor;
  tensor.set_buffer_id(buffer);
  tensor.set_dtype(dtype);
  tensor.set_offset_bytes(offset_bytes);
  for (const int64_t extent : shape) tensor.add_shape(extent);
  for (const int64_t stride : strides) tensor.add_strides(stride);
  return tensor;
}

v1::Op MatmulOp(const v1::Tensor& a, const v1::Tensor& b, const v1::Tensor& d) {
  v1::Op op;
  *op.mutable_matmul()->mutable_a()->mutable_values() = a;
  *op.mutable_matmul()->mutable_b()->mutable_values() = b;
  *op.mutable_matmul()->mutable_d() = d;
  return op;
}

v1::Op WriteOp(const v1::Tensor& dst, const std::string& data) {
  v1::Op op;
  *op.mutable_write()->mutable_dst() = dst;
  op.mutable_write()->set_data(data);
  return op;
}

v1::Op ReadOp(const v1::Tensor& src) {
  v1::Op op;
  *op.mutable_read()->mutable_src() = src;
  return op;
}

v1::Op FillOp(const v1::Tensor& dst, double value) {
  v1::Op op;
  *op.mutable_fill()->mutable_dst() = dst;
  op.mutable_fill()->set_value(value);
  return op;
}

v1::Op CopyOp(const v1::Tensor& src, const v1::Tensor& dst) {
  v1::Op op;
  *op.mutable_copy()->mutable_src() = src;
  *op.mutable_copy()->mutable_dst() = dst;
  return op;
}

v1::UploadRequest Chunk(const std::string& session, const std::string& buffer, int64_t offset_bytes,
                        const std::string& data) {
  v1::UploadRequest chunk;
  chunk.set_session_id(session);
  chunk.set_buffer_id(buffer);
  chunk.set_offset_bytes(offset_bytes);
  // isa-l works on the register without the inversions of the standard.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
  chunk.set_crc32c(~crc32_iscsi(bytes, static_cast<int>(data.size()), 0xffffffffu));
  chunk.set_data(data);
  return chunk;
}

}  // namespace gemmd::e2e
