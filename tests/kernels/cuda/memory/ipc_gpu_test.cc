// CUDA IPC between two processes: this test, and itself started again as its peer, which plays a
// client.

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/device_buffer.h"

extern char** environ;

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr int64_t kPeerBytes = 8 << 20;  // of the peer's allocation
constexpr int kPeerByte = 0x5a;          // what it is filled with
constexpr int kReadFd = 198;             // of the peer, beyond what a test runner opens
constexpr int kWriteFd = 199;
using IpcBytes = std::array<char, 64>;

bool ReadAll(int fd, void* data, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    const ssize_t now = read(fd, static_cast<char*>(data) + got, bytes - got);
    if (now <= 0) return false;
    got += static_cast<size_t>(now);
  }
  return true;
}

bool WriteAll(int fd, const void* data, size_t bytes) {
  return write(fd, data, bytes) == static_cast<ssize_t>(bytes);
}

// The peer's side: no test, but what the tests below start. Commands are single letters.
TEST(IpcPeer, DISABLED_Plays) {
  if (fcntl(kReadFd, F_GETFD) < 0) GTEST_SKIP() << "only the other tests of this file start it";
  char command = 0;
  void* own = nullptr;
  while (ReadAll(kReadFd, &command, 1)) {
    if (command == 'o') {  // owns memory: allocates, fills, answers with its handle
      ASSERT_EQ(cudaMalloc(&own, kPeerBytes), cudaSuccess);
      ASSERT_EQ(cudaMemset(own, kPeerByte, kPeerBytes), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      cudaIpcMemHandle_t handle;
      ASSERT_EQ(cudaIpcGetMemHandle(&handle, own), cudaSuccess);
      ASSERT_TRUE(WriteAll(kWriteFd, handle.reserved, sizeof(handle.reserved)));
    } else if (command == 'r') {  // reads its memory: answers with one byte of each 64 KiB
      std::vector<char> bytes(kPeerBytes);
      ASSERT_EQ(cudaMemcpy(bytes.data(), own, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      std::string sample;
      for (size_t at = 0; at < bytes.size(); at += 64 << 10) sample.push_back(bytes[at]);
      ASSERT_TRUE(WriteAll(kWriteFd, sample.data(), sample.size()));
    } else if (command == 'm') {  // maps a handle: reads 4096 bytes, writes them plus one, unmaps
      cudaIpcMemHandle_t handle;
      ASSERT_TRUE(ReadAll(kReadFd, handle.reserved, sizeof(handle.reserved)));
      void* mapped = nullptr;
      ASSERT_EQ(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
      std::array<unsigned char, 4096> bytes;
      ASSERT_EQ(cudaMemcpy(bytes.data(), mapped, bytes.size(), cudaMemcpyDeviceToHost),
                cudaSuccess);
      for (unsigned char& byte : bytes) ++byte;
      ASSERT_EQ(cudaMemcpy(mapped, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(cudaIpcCloseMemHandle(mapped), cudaSuccess);
      ASSERT_TRUE(WriteAll(kWriteFd, "m", 1));
    }
  }
}

// The peer as the tests see it. Killed at the end.
class Peer {
 public:
  Peer() {
    signal(SIGPIPE, SIG_IGN);  // a peer that failed is told by the read
    for (const char* shard : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(shard);
    int to[2], from[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[0], kReadFd);
    posix_spawn_file_actions_adddup2(&files, from[1], kWriteFd);
    const char* arguments[] = {"peer", "--gtest_filter=IpcPeer.DISABLED_Plays",
                               "--gtest_also_run_disabled_tests", nullptr};
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &files, nullptr,
                          const_cast<char* const*>(arguments), environ),
              0);
    posix_spawn_file_actions_destroy(&files);
    close(to[0]);
    close(from[1]);
    write_ = to[1];
    read_ = from[0];
  }
  ~Peer() {
    Kill();
    close(write_);
    close(read_);
  }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  std::string Own() {
    EXPECT_TRUE(WriteAll(write_, "o", 1));
    return Receive(64);
  }
  std::string Sample() {
    EXPECT_TRUE(WriteAll(write_, "r", 1));
    return Receive(kPeerBytes / (64 << 10));
  }
  void MapAndIncrement(const std::string& handle) {
    EXPECT_TRUE(WriteAll(write_, ("m" + handle).data(), 1 + handle.size()));
    EXPECT_EQ(Receive(1), "m");
  }

 private:
  std::string Receive(size_t bytes) {
    std::string data(bytes, '\0');
    EXPECT_TRUE(ReadAll(read_, data.data(), bytes)) << "the peer failed";
    return data;
  }

  pid_t pid_ = 0;
  int write_ = -1, read_ = -1;
};

class IpcGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = int64_t{1} << 30});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  DeviceHandle Handle(std::string handle, int64_t offset_bytes, int64_t size_bytes) {
    return {.handle = std::move(handle),
            .offset_bytes = offset_bytes,
            .size_bytes = size_bytes,
            .gpu_uuid = backend_->info().gpu_uuid};
  }
  std::string Contents(const Memory& memory) {
    std::string bytes(memory.size_bytes(), '\0');
    EXPECT_TRUE(
        memory.CopyOut(0, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()))
            .ok());
    return bytes;
  }
  void Fill(Memory& memory, char byte) {
    TensorRef all = {0, 0, DType::kI8, MakeDims({memory.size_bytes()}), {}};
    all.strides = RowMajorStrides(all.shape);
    auto program = backend_->Compile({Op(FillOp{all, static_cast<double>(byte)})});
    ASSERT_TRUE(program.ok()) << program.status();
    auto stream = backend_->CreateStream({});
    absl::Notification done;
    absl::Status status;
    stream->Launch(*program, {.slots = {memory.address()}}, [&](LaunchResult result) {
      status = result.status;
      done.Notify();
    });
    done.WaitForNotification();
    EXPECT_TRUE(status.ok()) << status;
  }
  // After whatever was refused: the device serves on.
  void ExpectAlive() {
    auto memory = backend_->Allocate(4096, MemoryKind::kDevice);
    ASSERT_TRUE(memory.ok()) << memory.status();
    Fill(**memory, 3);
    EXPECT_EQ(Contents(**memory), std::string(4096, 3));
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(IpcGpuTest, TellsTheGpusUuid) {
  EXPECT_THAT(backend_->info().gpu_uuid,
              testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(backend_->info().gpu_uuid.size(), 40u);
}

TEST_F(IpcGpuTest, KernelsReadAndWriteAnotherProcessesMemoryWithinItsBounds) {
  Peer peer;
  const std::string handle = peer.Own();
  {
    auto memory = backend_->ImportDevice(Handle(handle, 1 << 20, 2 << 20));
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->kind(), MemoryKind::kDeviceImported);
    EXPECT_EQ(Contents(**memory), std::string(2 << 20, kPeerByte));
    Fill(**memory, 7);
  }
  std::string want(kPeerBytes / (64 << 10), kPeerByte);
  for (int i = 16; i < 48; ++i) want[i] = 7;
  EXPECT_EQ(peer.Sample(), want);
}

TEST_F(IpcGpuTest, AnotherProcessMapsSharedMemory) {
  for (const int64_t size : {int64_t{4096}, int64_t{64} << 20}) {
    auto memory = backend_->Allocate(size, MemoryKind::kDeviceShared);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->kind(), MemoryKind::kDeviceShared);
    EXPECT_EQ(Contents(**memory), std::string(size, '\0'));
    Fill(**memory, 9);
    auto shared = (*memory)->Share();
    ASSERT_TRUE(shared.ok()) << shared.status();
    EXPECT_EQ(shared->offset_bytes, 0);
    EXPECT_EQ(shared->size_bytes, size);
    Peer peer;
    peer.MapAndIncrement(shared->handle);
    const std::string bytes = Contents(**memory);
    EXPECT_EQ(bytes.substr(0, 4096), std::string(4096, 10));
    EXPECT_EQ(bytes.substr(4096), std::string(size - 4096, 9));
  }
}

TEST_F(IpcGpuTest, OneAllocationIsImportedManyTimes) {
  Peer peer;
  const std::string handle = peer.Own();
  auto first = backend_->ImportDevice(Handle(handle, 0, 4096));
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 0; i < 100; ++i) {
    auto again = backend_->ImportDevice(Handle(handle, 256 * i, 4096));
    ASSERT_TRUE(again.ok()) << i << ": " << again.status();
    EXPECT_EQ((*again)->address(), (*first)->address() + 256 * i);
  }
  EXPECT_EQ(Contents(**first), std::string(4096, kPeerByte));
}

TEST_F(IpcGpuTest, WhatReachesPastTheAllocationIsRefused) {
  Peer peer;
  const std::string handle = peer.Own();
  EXPECT_TRUE(backend_->ImportDevice(Handle(handle, 0, kPeerBytes)).ok());
  for (const auto& [offset, size] : std::vector<std::pair<int64_t, int64_t>>{
           {0, int64_t{1} << 40}, {kPeerBytes, int64_t{4} << 20}, {int64_t{1} << 40, 256}}) {
    const absl::Status refused = backend_->ImportDevice(Handle(handle, offset, size)).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("past the end"));
  }
  ExpectAlive();
}

TEST_F(IpcGpuTest, ItsOwnMemoryIsNotMappedTwice) {
  auto memory = backend_->Allocate(4096, MemoryKind::kDeviceShared);
  ASSERT_TRUE(memory.ok());
  auto shared = (*memory)->Share();
  ASSERT_TRUE(shared.ok()) << shared.status();
  const absl::Status refused = backend_->ImportDevice(*shared).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
  ExpectAlive();
}

TEST_F(IpcGpuTest, HandlesOfNothingAreRefused) {
  for (const char byte : {'\0', 'h', '\xff'}) {
    const absl::Status refused =
        backend_->ImportDevice(Handle(std::string(64, byte), 0, 4096)).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
  }
  ExpectAlive();
}

TEST_F(IpcGpuTest, MemoryOfADeadProcessIsRefused) {
  Peer peer;
  const std::string handle = peer.Own();
  peer.Kill();
  const absl::Status refused = backend_->ImportDevice(Handle(handle, 0, 4096)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ended"));
  ExpectAlive();
}

TEST_F(IpcGpuTest, AnOwnerThatDiesTakesNothingDown) {
  Peer peer;
  auto memory = backend_->ImportDevice(Handle(peer.Own(), 0, kPeerBytes));
  ASSERT_TRUE(memory.ok()) << memory.status();
  peer.Kill();
  Fill(**memory, 1);  // the driver keeps the pages for as long as they are mapped here
  memory->reset();
  ExpectAlive();
}

TEST_F(IpcGpuTest, OnlySharedMemoryHasAHandle) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostShared}) {
    auto memory = backend_->Allocate(4096, kind);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ((*memory)->Share().status().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(backend_->Allocate(4096, MemoryKind::kDeviceImported).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(IpcGpuTest, SharedMemoryComesOutOfTheBudgetByBlocks) {
  auto backend = CreateCudaBackend({.memory_bytes = 3 * kDeviceSharedBlockBytes});
  ASSERT_TRUE(backend.ok());
  auto first = (*backend)->Allocate(1, MemoryKind::kDeviceShared);
  auto second = (*backend)->Allocate(kDeviceSharedBlockBytes + 1, MemoryKind::kDeviceShared);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(second.ok());
  EXPECT_EQ((*backend)->Allocate(1, MemoryKind::kDeviceShared).status().code(),
            StatusCode::kResourceExhausted);
  first->reset();
  EXPECT_TRUE((*backend)->Allocate(1, MemoryKind::kDeviceShared).ok());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
