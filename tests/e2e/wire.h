// The wire without a client library between: for requests that our clients refuse to send, and for
// looking at exactly what comes back.
//
//   Wire wire(daemon.target());
//   const std::string session = wire.OpenSession();
//   const std::string x = wire.CreateBuffer(session, 1024);
//   grpc::Status status = wire.Execute(session, {Matmul(View(x, {4, 4}), ...)});

#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "gemmd/v1/session_service.grpc.pb.h"

namespace gemmd::e2e {

// Calls end the test program when a set-up step fails; what a test is about returns its status.
class Wire {
 public:
  explicit Wire(const std::string& target);

  std::string OpenSession(const std::string& label = "");
  grpc::Status CloseSession(const std::string& session);
  std::string CreateBuffer(const std::string& session, int64_t size_bytes);
  v1::Buffer GetBuffer(const std::string& session, const std::string& buffer);
  grpc::Status Execute(const std::string& session, const std::vector<v1::Op>& ops,
                       v1::ExecuteResponse* response = nullptr);
  grpc::Status Upload(const std::vector<v1::UploadRequest>& chunks,
                      v1::UploadResponse* response = nullptr);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::SessionService::Stub& sessions() { return *sessions_; }
  v1::BufferService::Stub& buffers() { return *buffers_; }
  v1::ComputeService::Stub& compute() { return *compute_; }
  v1::DeviceService::Stub& devices() { return *devices_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::BufferService::Stub> buffers_;
  std::unique_ptr<v1::ComputeService::Stub> compute_;
  std::unique_ptr<v1::DeviceService::Stub> devices_;
};

v1::Tensor View(const std::string& buffer, const std::vector<int64_t>& shape,
                v1::DType dtype = v1::DTYPE_F32, int64_t offset_bytes = 0,
                const std::vector<int64_t>& strides = {});
v1::Op MatmulOp(const v1::Tensor& a, const v1::Tensor& b, const v1::Tensor& d);
v1::Op WriteOp(const v1::Tensor& dst, const std::string& data);
v1::Op ReadOp(const v1::Tensor& src);
v1::Op FillOp(const v1::Tensor& dst, double value);
v1::Op CopyOp(const v1::Tensor& src, const v1::Tensor& dst);

// A chunk with its CRC32C.
v1::UploadRequest Chunk(const std::string& session, const std::string& buffer, int64_t offset_bytes,
                        const std::string& data);

}  // namespace gemmd::e2e
