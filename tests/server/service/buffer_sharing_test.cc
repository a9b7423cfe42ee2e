// Export and Import of device memory over gRPC and the share socket, on devices that only say they
// are GPUs.

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/share/share_record.h"
#include "tests/server/engine/share_client.h"
#include "tests/server/service/served_device.h"

namespace gemmd::server {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

constexpr char kHere[] = "GPU-fake";

class BufferSharingTest : public ServedDevice {
 protected:
  // One device a UUID; "" is none of a GPU.
  explicit BufferSharingTest(std::vector<std::string> uuids = {"GPU-other", kHere}) {
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    for (const std::string& uuid : uuids) {
      backends.push_back(
          std::make_unique<FakeBackend>(device_, absl::StrCat("gpu:", backends.size()), uuid));
    }
    Config config;
    config.tenants = {{.name = "red"}};
    buffers_ = v1::BufferService::NewStub(Serve(config, std::move(backends)));
  }
  ~BufferSharingTest() override {
    session_.reset();
    listener_.reset();
  }

  std::string session_id() const { return ToBytes(session_->handle()); }

  grpc::Status Create(v1::MemoryKind kind, v1::Buffer& made) {
    v1::CreateBufferRequest request;
    request.set_session_id(session_id());
    request.set_size_bytes(4096);
    request.set_memory_kind(kind);
    grpc::ClientContext context;
    return buffers_->CreateBuffer(&context, request, &made);
  }
  grpc::Status Export(const std::string& id, bool writable, v1::ExportBufferResponse& response) {
    v1::ExportBufferRequest request;
    request.set_session_id(session_id());
    request.set_buffer_id(id);
    request.set_writable(writable);
    grpc::ClientContext context;
    return buffers_->ExportBuffer(&context, request, &response);
  }
  static v1::CudaIpcMemory Record() {
    v1::CudaIpcMemory record;
    record.set_handle(std::string(64, 'c'));
    record.set_offset_bytes(512);
    record.set_size_bytes(8192);
    record.set_gpu_uuid(kHere);
    record.set_process("client");
    return record;
  }
  grpc::Status Import(const std::string& bytes, v1::Buffer& made, int64_t size_bytes = 0) {
    const auto fd = WriteRecord(bytes);
    const ShareAnswer put = Exchange(state_->share()->address(), "P", {fd->get()});
    EXPECT_EQ(put.bytes.size(), 1 + kHandleBytes);
    v1::ImportBufferRequest request;
    request.set_session_id(session_id());
    request.set_token(put.bytes.substr(1));
    request.set_memory_kind(v1::MEMORY_KIND_DEVICE_IMPORTED);
    request.set_size_bytes(size_bytes);
    grpc::ClientContext context;
    return buffers_->ImportBuffer(&context, request, &made);
  }
  grpc::Status Import(const v1::CudaIpcMemory& record, v1::Buffer& made, int64_t size_bytes = 0) {
    return Import(record.SerializeAsString(), made, size_bytes);
  }

  std::unique_ptr<v1::BufferService::Stub> buffers_;
};

TEST_F(BufferSharingTest, AnExportCrossesTheShareSocketAlone) {
  v1::Buffer made;
  ASSERT_TRUE(Create(v1::MEMORY_KIND_DEVICE_SHARED, made).ok());
  EXPECT_EQ(made.memory_kind(), v1::MEMORY_KIND_DEVICE_SHARED);
  v1::ExportBufferResponse exported;
  ASSERT_TRUE(Export(made.buffer_id(), true, exported).ok());
  EXPECT_THAT(exported.SerializeAsString(), testing::Not(HasSubstr(std::string(64, 'h'))));
  const ShareAnswer answer = GetShared(exported.share_socket(), *HandleFromBytes(exported.token()));
  ASSERT_EQ(answer.fds.size(), 1u);
  v1::CudaIpcMemory record;
  ASSERT_TRUE(record.ParseFromString(*ReadRecord(answer.fds[0].get())));
  EXPECT_EQ(record.handle(), std::string(64, 'h'));
  EXPECT_EQ(record.size_bytes(), 4096);
  EXPECT_EQ(record.gpu_uuid(), kHere);
  EXPECT_EQ(record.process(), "instance");
}

TEST_F(BufferSharingTest, OnlySharedMemoryIsExportedAndNoneOfItReadOnly) {
  v1::Buffer plain, shared;
  v1::ExportBufferResponse exported;
  ASSERT_TRUE(Create(v1::MEMORY_KIND_DEVICE, plain).ok());
  const grpc::Status refused = Export(plain.buffer_id(), true, exported);
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("DEVICE_SHARED"));
  ASSERT_TRUE(Create(v1::MEMORY_KIND_DEVICE_SHARED, shared).ok());
  EXPECT_EQ(Export(shared.buffer_id(), false, exported).error_code(), StatusCode::INVALID_ARGUMENT);
  v1::PublishBufferRequest publish;
  publish.set_session_id(session_id());
  publish.set_buffer_id(shared.buffer_id());
  publish.set_name("weights");
  v1::PublishBufferResponse published;
  grpc::ClientContext context;
  ASSERT_TRUE(buffers_->PublishBuffer(&context, publish, &published).ok());
  for (const bool writable : {false, true}) {
    const grpc::Status status = Export(shared.buffer_id(), writable, exported);
    EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION) << writable;
    EXPECT_THAT(status.error_message(), HasSubstr("read-only"));
  }
}

TEST_F(BufferSharingTest, AnImportGoesToTheDeviceThatHoldsTheMemory) {
  v1::Buffer made;
  const grpc::Status status = Import(Record(), made);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(made.device(), "gpu:1");  // the session's is gpu:0
  EXPECT_EQ(made.size_bytes(), 8192);
  EXPECT_EQ(made.memory_kind(), v1::MEMORY_KIND_DEVICE_IMPORTED);
  v1::ExportBufferResponse exported;
  const grpc::Status again = Export(made.buffer_id(), true, exported);
  EXPECT_EQ(again.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(again.error_message(), HasSubstr("owner"));
  v1::Buffer part;
  ASSERT_TRUE(Import(Record(), part, 100).ok());
  EXPECT_EQ(part.size_bytes(), 100);
}

TEST_F(BufferSharingTest, WhatCannotBeMappedIsRefusedByName) {
  struct Case {
    const char* what;
    std::string bytes;
    StatusCode code;
    const char* says;
    int64_t size_bytes = 0;
  };
  const auto with = [](auto change) {
    v1::CudaIpcMemory record = Record();
    change(record);
    return record.SerializeAsString();
  };
  const std::vector<Case> cases = {
      {"another GPU", with([](auto& r) { r.set_gpu_uuid("GPU-elsewhere"); }),
       StatusCode::FAILED_PRECONDITION, "gpu:1 is GPU-fake"},
      {"this server's own", with([](auto& r) { r.set_process("instance"); }),
       StatusCode::FAILED_PRECONDITION, "this server's own"},
      {"no message", "\x0a\x7f", StatusCode::INVALID_ARGUMENT, "CudaIpcMemory"},
      {"a short handle", with([](auto& r) { r.set_handle("short"); }), StatusCode::INVALID_ARGUMENT,
       "not a handle"},
      {"no size", with([](auto& r) { r.set_size_bytes(0); }), StatusCode::INVALID_ARGUMENT,
       "size_bytes"},
      {"beyond the end", with([](auto&) {}), StatusCode::FAILED_PRECONDITION, "8192", 8193},
  };
  for (const Case& one : cases) {
    v1::Buffer made;
    const grpc::Status status = Import(one.bytes, made, one.size_bytes);
    EXPECT_EQ(status.error_code(), one.code) << one.what << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(one.says)) << one.what;
  }
  EXPECT_TRUE(session_->Buffers().empty());
}

TEST_F(BufferSharingTest, DeletingAnImportIsAnsweredOnceItIsUnmapped) {
  v1::Buffer made;
  ASSERT_TRUE(Import(Record(), made).ok());
  BufferLease in_flight = session_->FindBuffer(*HandleFromBytes(made.buffer_id()))->buffer;
  v1::DeleteBuffersRequest request;
  request.set_session_id(session_id());
  request.add_buffer_ids(made.buffer_id());
  v1::DeleteBuffersResponse response;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = buffers_->AsyncDeleteBuffers(&context, request, &queue);
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  // The handle dies at once; the answer waits for the lease.
  const absl::Time limit = absl::Now() + absl::Minutes(1);
  while (session_->Buffers().size() == 1 && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(session_->Buffers().empty());
  EXPECT_EQ(live_.count(), 1);
  in_flight.reset();
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

class NoGpuTest : public BufferSharingTest {
 protected:
  NoGpuTest() : BufferSharingTest({"", ""}) {}
};

TEST_F(NoGpuTest, SharesNoDeviceMemory) {
  v1::Buffer made;
  EXPECT_EQ(Create(v1::MEMORY_KIND_DEVICE_SHARED, made).error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Import(Record(), made).error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Create(v1::MEMORY_KIND_DEVICE_IMPORTED, made).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace gemmd::server
