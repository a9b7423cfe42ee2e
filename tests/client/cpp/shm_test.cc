// Transfers through shared memory, mapping, and importing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/shared_memory.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"
#include "tests/client/cpp/random_bytes.h"

namespace gemmd::client {
namespace {

class ShmTest : public ::testing::Test {
 protected:
  Buffer MakeShared(int64_t size_bytes) {
    return *session_.CreateBuffer(
        {.size_bytes = size_bytes, .memory_kind = MemoryKind::kHostShared});
  }

  FakeDaemon daemon_{{.share = true}};
  Client client_ = ConnectTo(daemon_);
  Session session_ = *client_.OpenSession({.liveness = SessionOptions::Liveness::kNone});
};

TEST_F(ShmTest, ClientSeesThatItSharesTheHost) {
  EXPECT_TRUE(client_.SharesHost());
  FakeDaemon elsewhere;
  EXPECT_FALSE(ConnectTo(elsewhere).SharesHost());
  EXPECT_FALSE(ConnectTo(daemon_, {.shared_memory = false}).SharesHost());
}

TEST_F(ShmTest, MappedMemoryIsTheBuffers) {
  Buffer buffer = MakeShared(100);
  const absl::StatusOr<absl::Span<char>> memory = buffer.Map();
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->size(), 100);
  std::memcpy(memory->data() + 10, "hello", 5);
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()).substr(10, 5), "hello");
  EXPECT_EQ(buffer.Map()->data(), memory->data());
  EXPECT_EQ(buffer.MapReadOnly()->substr(10, 5), "hello");
  EXPECT_EQ(daemon_.Calls("ExportBuffer"), 1);
}

TEST_F(ShmTest, DeviceMemoryAndReadOnlyBuffersCannotBeMappedForWriting) {
  Buffer device = *session_.CreateBuffer({.size_bytes = 100});
  EXPECT_EQ(device.Map().status().code(), absl::StatusCode::kFailedPrecondition);
  Buffer shared = MakeShared(100);
  ASSERT_TRUE(session_.Publish(shared, "name").ok());
  EXPECT_EQ(shared.Map().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(shared.MapReadOnly().ok());
}

TEST_F(ShmTest, SharedBuffersAreFilledAndReadWithoutAStream) {
  const std::string bytes = RandomBytes(5000);
  Buffer buffer = MakeShared(6000);
  const auto up = buffer.Upload(bytes, 1000);
  ASSERT_TRUE(up.ok()) << up.status();
  EXPECT_EQ(up->path, TransferPath::kShm);
  EXPECT_EQ(Name(up->path), "shm");
  std::string back(5000, '?');
  const auto down = buffer.Download(absl::MakeSpan(back.data(), back.size()), 1000);
  ASSERT_TRUE(down.ok());
  EXPECT_EQ(down->path, TransferPath::kShm);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(daemon_.Calls("Upload") + daemon_.Calls("Download"), 0);
  EXPECT_EQ(daemon_.Calls("ExportBuffer"), 1) << "mapped once";
}

TEST_F(ShmTest, LargeDeviceTransfersAreStagedAndCopied) {
  for (int64_t size : {kMiB, 8 * kMiB, 8 * kMiB + 1, 21 * kMiB + 5}) {
    const std::string bytes = RandomBytes(static_cast<size_t>(size));
    Buffer buffer = *session_.CreateBuffer({.size_bytes = size + 3});
    const auto up = buffer.Upload(bytes, 3);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_EQ(up->path, TransferPath::kShm);
    EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()).substr(3), bytes);
    std::string back(static_cast<size_t>(size), '?');
    const auto down = buffer.Download(absl::MakeSpan(back.data(), back.size()), 3);
    ASSERT_TRUE(down.ok()) << down.status();
    EXPECT_EQ(down->path, TransferPath::kShm);
    EXPECT_EQ(back, bytes);
  }
  EXPECT_EQ(daemon_.Calls("ExportBuffer"), 1) << "one staging buffer for all";
  EXPECT_EQ(daemon_.Calls("Upload") + daemon_.Calls("Download"), 0);
}

// Longer than all windows together, so that each is used again while others are under way.
TEST_F(ShmTest, ThreadsShareATransferAndTheCallersOneReports) {
  const std::string bytes = RandomBytes(static_cast<size_t>(70 * kMiB + 5));
  const auto size = static_cast<int64_t>(bytes.size());
  Buffer buffer = *session_.CreateBuffer({.size_bytes = size});
  const std::thread::id caller = std::this_thread::get_id();
  int64_t seen = 0;
  TransferOptions options = {.copy_threads = 4, .route = TransferOptions::Route::kShm};
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_GE(done, seen);
    EXPECT_EQ(total, size);
    seen = done;
  };
  ASSERT_TRUE(buffer.Upload(bytes, 0, options).ok());
  EXPECT_EQ(seen, size);
  EXPECT_TRUE(daemon_.Bytes(buffer.id().bytes()) == bytes);
  seen = 0;
  std::string back(bytes.size(), '?');
  ASSERT_TRUE(buffer.Download(absl::MakeSpan(back.data(), back.size()), 0, options).ok());
  EXPECT_EQ(seen, size);
  EXPECT_TRUE(back == bytes);
}

TEST_F(ShmTest, ALongTransferGetsMoreStagingOnce) {
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 150 * kMiB});
  const auto both_ways = [&](int64_t size) {
    const std::string bytes = RandomBytes(static_cast<size_t>(size));
    const auto up = buffer.Upload(bytes);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_EQ(up->path, TransferPath::kShm);
    std::string back(bytes.size(), '?');
    ASSERT_TRUE(buffer.Download(absl::MakeSpan(back.data(), back.size())).ok());
    EXPECT_TRUE(back == bytes);
  };
  const auto staging = [&] {
    session_.FlushDeletions();
    std::vector<int64_t> sizes;
    for (const std::string& id : daemon_.Buffers()) {
      if (id != buffer.id().bytes())
        sizes.push_back(static_cast<int64_t>(daemon_.Bytes(id).size()));
    }
    return sizes;
  };
  both_ways(40 * kMiB);
  EXPECT_THAT(staging(), testing::ElementsAre(32 * kMiB));
  both_ways(150 * kMiB - 3);
  EXPECT_THAT(staging(), testing::ElementsAre(64 * kMiB));
  both_ways(40 * kMiB);
  both_ways(150 * kMiB);
  EXPECT_THAT(staging(), testing::ElementsAre(64 * kMiB));
  EXPECT_EQ(daemon_.Calls("CreateBuffer"), 3);
}

TEST_F(ShmTest, ALongTransferDoesWithLessAndAsksForMoreOnce) {
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 130 * kMiB});
  const std::string bytes = RandomBytes(static_cast<size_t>(130 * kMiB));
  daemon_.Fail("CreateBuffer", absl::ResourceExhaustedError("full"));
  for (int i = 0; i < 2; ++i) {
    const auto up = buffer.Upload(bytes);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_EQ(up->path, TransferPath::kShm);
    EXPECT_TRUE(daemon_.Bytes(buffer.id().bytes()) == bytes);
  }
  EXPECT_EQ(daemon_.Calls("CreateBuffer"), 3);
}

TEST_F(ShmTest, ProgressThatThrowsEndsTheTransferAndLeavesTheStagingUsable) {
  const std::string bytes = RandomBytes(static_cast<size_t>(40 * kMiB));
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 40 * kMiB});
  TransferOptions options = {.copy_threads = 3, .route = TransferOptions::Route::kShm};
  options.progress = [](int64_t, int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(buffer.Upload(bytes, 0, options).status().IgnoreError(), std::runtime_error);
  options.progress = nullptr;
  ASSERT_TRUE(buffer.Upload(bytes, 0, options).ok());
  EXPECT_TRUE(daemon_.Bytes(buffer.id().bytes()) == bytes);
}

TEST_F(ShmTest, SmallDeviceTransfersGoByGrpc) {
  Buffer buffer = *session_.CreateBuffer({.size_bytes = kMiB - 1});
  EXPECT_EQ(buffer.Upload(RandomBytes(kMiB - 1))->path, TransferPath::kGrpc);
}

TEST_F(ShmTest, FailedSharingFallsBackToGrpcUnlessInsistedOn) {
  const std::string bytes = RandomBytes(2 * kMiB);
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 2 * kMiB});
  daemon_.Fail("ExportBuffer", Signed(absl::FailedPreconditionError("no"), "NOT_SHARED"), 2);
  const auto report = buffer.Upload(bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->path, TransferPath::kGrpc);
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
  EXPECT_EQ(ReasonOf(buffer.Upload(bytes, 0, {.route = TransferOptions::Route::kShm}).status()),
            "NOT_SHARED");
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Buffers().size(), 1) << "no staging buffer is left behind";
}

TEST_F(ShmTest, CopyThatFailsIsTheTransfersError) {
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 2 * kMiB});
  daemon_.Fail("Execute", Signed(absl::UnavailableError("fenced"), "DEVICE_FENCED"));
  const TransferOptions options = {.route = TransferOptions::Route::kShm};
  EXPECT_EQ(ReasonOf(buffer.Upload(RandomBytes(2 * kMiB), 0, options).status()), "DEVICE_FENCED");
}

TEST_F(ShmTest, CopyThatFailsHalfwayEndsTheOtherThreadsToo) {
  std::string bytes = RandomBytes(static_cast<size_t>(70 * kMiB));
  Buffer buffer = *session_.CreateBuffer({.size_bytes = 70 * kMiB});
  const TransferOptions options = {.copy_threads = 4, .route = TransferOptions::Route::kShm};
  const auto fenced = Signed(absl::UnavailableError("fenced"), "DEVICE_FENCED");
  daemon_.Fail("Execute", fenced);
  EXPECT_EQ(ReasonOf(buffer.Upload(bytes, 0, options).status()), "DEVICE_FENCED");
  daemon_.Fail("Execute", fenced);
  EXPECT_EQ(
      ReasonOf(buffer.Download(absl::MakeSpan(bytes.data(), bytes.size()), 0, options).status()),
      "DEVICE_FENCED");
}

TEST_F(ShmTest, ImportedMemoryIsTheBuffers) {
  SharedMemory memory = *SharedMemory::Create(4096);
  std::memcpy(memory.span().data(), "mine", 4);
  absl::StatusOr<Buffer> buffer =
      session_.ImportBuffer(std::move(memory), {.dtype = DType::kF32, .shape = {32, 32}});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->dtype(), DType::kF32);
  EXPECT_EQ(daemon_.Bytes(buffer->id().bytes()).substr(0, 4), "mine");
  EXPECT_EQ(std::string(buffer->Map()->data(), 4), "mine");
  EXPECT_EQ(daemon_.Calls("ExportBuffer"), 0) << "it is mapped here already";
}

TEST_F(ShmTest, DeviceMemoryGoesOverTheShareSocketAndComesBackAsItsKind) {
  absl::StatusOr<Buffer> buffer = session_.ImportDevice(
      {.handle = "a handle", .offset_bytes = 512, .size_bytes = 1 << 20, .gpu_uuid = "GPU-1"});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->memory_kind(), MemoryKind::kDeviceImported);
  EXPECT_EQ(buffer->size_bytes(), 1 << 20);
  EXPECT_EQ(buffer->label(), "a handle");
  EXPECT_EQ(buffer->ShareDevice().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShmTest, AHandleOfNoSizeThatCouldBeIsNotSent) {
  EXPECT_EQ(session_.ImportDevice({.handle = std::string(8192, 'h')}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(daemon_.Calls("ImportBuffer"), 0);
}

TEST(SharedMemoryTest, RefusesWhatCouldShrinkOrIsTooShort) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  EXPECT_EQ(SharedMemory::Adopt(fd, 4096, true).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const SharedMemory memory = *SharedMemory::Create(4096);
  EXPECT_EQ(SharedMemory::Adopt(dup(memory.fd()), 8192, true).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(ftruncate(memory.fd(), 0), 0) << "sealed";
  EXPECT_FALSE(SharedMemory::Create(0).ok());
}

TEST(ShareSocketTest, UnknownTokenIsRefusedInTheDaemonsWords) {
  FakeDaemon daemon({.share = true});
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  daemon.Fail("ImportBuffer", Gone("token"));
  EXPECT_EQ(session.ImportBuffer(*SharedMemory::Create(64)).status().message(), "no such token");
}

TEST(ShareSocketTest, WrongAddressesAreToldApart) {
  EXPECT_EQ(ProbeShareSocket("unix-abstract:gemmd-nobody").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ProbeShareSocket("unix:/nowhere/share.sock").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ProbeShareSocket("127.0.0.1:80").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ProbeShareSocket("unix:" + std::string(200, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gemmd::client
