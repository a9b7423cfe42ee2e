// Shared memory between client and daemon on one host.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "client/cpp/shared_memory.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Fill;
using client::OpList;
using client::TransferOptions;
using client::TransferPath;

class ShareTest : public E2eTest {
 protected:
  static std::string Pattern(size_t size) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + (i >> 8));
    return bytes;
  }
};

TEST_F(ShareTest, BothWaysThroughAMappedBuffer) {
  ASSERT_TRUE(client_.SharesHost());
  const std::string bytes = Pattern(3 << 20);
  client::Buffer shared = Must(session_.CreateBuffer(
      {.size_bytes = 3 << 20, .memory_kind = client::MemoryKind::kHostShared}));
  EXPECT_EQ(Must(shared.Upload(bytes)).path, TransferPath::kShm);
  std::string back(bytes.size(), '\0');
  EXPECT_EQ(Must(shared.Download(absl::MakeSpan(back))).path, TransferPath::kShm);
  EXPECT_EQ(back, bytes);
  // And by the other road the same bytes come out.
  std::string by_grpc(bytes.size(), '\0');
  EXPECT_EQ(
      Must(shared.Download(absl::MakeSpan(by_grpc), 0, {.route = TransferOptions::Route::kGrpc}))
          .path,
      TransferPath::kGrpc);
  EXPECT_EQ(by_grpc, bytes);
}

TEST_F(ShareTest, DeviceMemoryThroughStaging) {
  const std::string bytes = Pattern(5 << 20);
  client::Buffer device = Must(session_.CreateBuffer({.size_bytes = 5 << 20}));
  EXPECT_EQ(Must(device.Upload(bytes)).path, TransferPath::kShm);
  std::string back(bytes.size(), '\0');
  EXPECT_EQ(Must(device.Download(absl::MakeSpan(back), 0, {.route = TransferOptions::Route::kGrpc}))
                .bytes,
            5 << 20);
  EXPECT_EQ(back, bytes);
}

int CallbackThreads() {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    count += name == "nexting_thread" ? 1 : 0;  // so gRPC calls them
  }
  return count;
}

// Such threads poll for the whole process: each answer to a blocking call would wake one of them
// first.
TEST_F(ShareTest, NeitherTransfersNorAsyncCallsNeedCallbackThreads) {
  const int before = CallbackThreads();  // of queues of other tests in this process
  client::Buffer device = Must(session_.CreateBuffer({.size_bytes = 5 << 20}));
  EXPECT_EQ(Must(device.Upload(Pattern(5 << 20))).path, TransferPath::kShm);
  Must(session_.ExecuteAsync(OpList().Add(Fill{MakeBuffer(session_, {4, 4}).tensor(), 1})).get());
  EXPECT_EQ(CallbackThreads(), before);
  client::Queue queue = Must(session_.OpenQueue());
  EXPECT_TRUE(WaitUntil([] { return CallbackThreads() > 0; }));
}

TEST_F(ShareTest, OpsWorkOnTheClientsMemory) {
  client::SharedMemory memory = Must(client::SharedMemory::Create(64));
  client::Buffer imported = Must(
      session_.ImportBuffer(std::move(memory), {.dtype = client::DType::kF32, .shape = {4, 4}}));
  Must(session_.Execute(OpList().Add(Fill{imported.tensor(), 2.5})));
  const absl::Span<char> mapped = Must(imported.Map());
  float first = 0;
  std::memcpy(&first, mapped.data(), sizeof(first));
  EXPECT_EQ(first, 2.5f);
}

TEST_F(ShareTest, APublishedBufferMapsForReadingOnly) {
  client::Buffer shared = Must(
      session_.CreateBuffer({.size_bytes = 4096, .memory_kind = client::MemoryKind::kHostShared}));
  ASSERT_TRUE(session_.Publish(shared, "shared").ok());
  client::Session other = Must(client_.OpenSession());
  client::Buffer found = Must(other.Find("shared"));
  EXPECT_EQ(found.Map().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Must(found.MapReadOnly()).size(), 4096u);
}

TEST_F(ShareTest, MemoryThatCouldShrinkIsRefused) {
  const int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  // The client library refuses as well; on its own it is the server's own check that counts, which
  // tests/server covers.
  const auto adopted = client::SharedMemory::Adopt(fd, 4096, true);
  EXPECT_EQ(adopted.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShareTest, ACpuDeviceMapsNoGpusMemory) {
  const client::DeviceMemory memory = {
      .handle = std::string(64, 'h'), .size_bytes = 4096, .gpu_uuid = "GPU-none"};
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = session_.ImportDevice(memory).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
    EXPECT_EQ(client::ReasonOf(refused), "NOT_SHARED");
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("memfd"));
  }
  EXPECT_TRUE(Must(session_.ListBuffers()).empty());
}

TEST_F(ShareTest, OnlySharedDeviceMemoryHasAHandleToShare) {
  client::Buffer shared = Must(
      session_.CreateBuffer({.size_bytes = 4096, .memory_kind = client::MemoryKind::kHostShared}));
  const absl::Status refused = shared.ShareDevice().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("host_shared"));
}

TEST_F(ShareTest, LeavesNoDescriptorBehind) {
  const auto once = [&] {
    client::Buffer shared = Must(session_.CreateBuffer(
        {.size_bytes = 1 << 20, .memory_kind = client::MemoryKind::kHostShared}));
    Must(shared.Map());
    Must(session_.ImportBuffer(Must(client::SharedMemory::Create(4096)), {.size_bytes = 4096}));
    session_.ImportDevice({.handle = "none"}).IgnoreError();
  };
  for (int i = 0; i < 5; ++i) once();
  session_.FlushDeletions();
  const ProcessUse early = UseOf(daemon_.process().pid());
  for (int i = 0; i < 100; ++i) once();
  session_.FlushDeletions();
  ProcessUse late;
  EXPECT_TRUE(WaitUntil([&] {
    late = UseOf(daemon_.process().pid());
    return late.descriptors <= early.descriptors;
  })) << early.descriptors
      << " -> " << late.descriptors;
}

TEST(ShareOffTest, TransfersGoByGrpc) {
  Daemon daemon({.config = "share { disabled: true }"});
  client::Client client = ConnectTo(daemon);
  EXPECT_FALSE(client.SharesHost());
  client::Session session = Must(client.OpenSession());
  client::Buffer buffer = Must(session.CreateBuffer({.size_bytes = 2 << 20}));
  EXPECT_EQ(Must(buffer.Upload(std::string(2 << 20, 'x'))).path, TransferPath::kGrpc);
  EXPECT_EQ(buffer.Upload("x", 0, {.route = TransferOptions::Route::kShm}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd::e2e
