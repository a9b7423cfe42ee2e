#include "kernels/cpu/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::kernels::cpu {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr int64_t kLimit = 1 << 30;

// A memfd that the test owns, as a client would make it.
class ClientFile {
 public:
  ClientFile(int64_t size_bytes, int seals)
      : fd_(memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(fd_, size_bytes), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~ClientFile() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

class MemoryTest : public testing::TestWithParam<MemoryKind> {
 protected:
  Budget budget_{"cpu:0", kLimit};
};

TEST_P(MemoryTest, StartsAsZerosOnAnAlignedAddress) {
  for (int64_t size : {1, 100, 65536, 65537, 1 << 20, 9 << 20}) {
    auto memory = AllocateMemory(budget_, size, GetParam());
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->size_bytes(), size);
    EXPECT_EQ((*memory)->kind(), GetParam());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->address()) % 256, 0u);
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ((*memory)->address()[i], std::byte{0});
    std::memset((*memory)->address(), 0xab, size);  // the next one must not see this
  }
}

TEST_P(MemoryTest, CopiesInAndOut) {
  auto memory = AllocateMemory(budget_, 1000, GetParam());
  ASSERT_TRUE(memory.ok());
  std::vector<std::byte> source(300, std::byte{7});
  std::vector<std::byte> target(302);
  ASSERT_TRUE((*memory)->CopyIn(700, source).ok());
  ASSERT_TRUE((*memory)->CopyOut(698, absl::MakeSpan(target)).ok());
  EXPECT_EQ(target[1], std::byte{0});
  EXPECT_EQ(target[2], std::byte{7});
  EXPECT_EQ(target[301], std::byte{7});
}

TEST_P(MemoryTest, GathersSourcesOneBehindTheOther) {
  // Both sides of the size from which copies go past the cache.
  for (int64_t size : {int64_t{100}, int64_t{8} << 20}) {
    auto memory = AllocateMemory(budget_, size, GetParam());
    ASSERT_TRUE(memory.ok()) << memory.status();
    const std::vector<std::byte> a(3, std::byte{1}), none, b(90, std::byte{2});
    const absl::Span<const std::byte> sources[] = {a, none, b};
    ASSERT_TRUE((*memory)->Gather(7, sources).ok());
    const std::byte* at = (*memory)->address();
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(static_cast<int>(at[i]), i < 7 ? 0 : i < 10 ? 1 : 2) << i;
    }
    EXPECT_EQ((*memory)->Gather(size - 92, sources).code(), StatusCode::kOutOfRange);
    EXPECT_TRUE((*memory)->Gather(size, {}).ok());
  }
}

TEST_P(MemoryTest, RefusesCopiesOutsideTheAllocation) {
  auto memory = AllocateMemory(budget_, 1000, GetParam());
  ASSERT_TRUE(memory.ok());
  std::vector<std::byte> bytes(301);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (int64_t offset : {int64_t{700}, int64_t{-1}, int64_t{1001}, kMax, -kMax}) {
    EXPECT_EQ((*memory)->CopyIn(offset, bytes).code(), StatusCode::kOutOfRange) << offset;
    EXPECT_EQ((*memory)->CopyOut(offset, absl::MakeSpan(bytes)).code(), StatusCode::kOutOfRange);
  }
  EXPECT_TRUE((*memory)->CopyIn(1000, {}).ok());
}

TEST_P(MemoryTest, RefusesSizesThatAreNotPositive) {
  for (int64_t size : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(AllocateMemory(budget_, size, GetParam()).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(budget_.used_bytes(), 0);
}

TEST_P(MemoryTest, ChargesTheBudgetUntilFreed) {
  auto first = AllocateMemory(budget_, kLimit - 100, GetParam());
  ASSERT_TRUE(first.ok());
  const auto second = AllocateMemory(budget_, 101, GetParam());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("size_bytes=101 exceeds what is free on cpu:0: 1073741724 of 1073741824"));
  EXPECT_TRUE(AllocateMemory(budget_, 100, GetParam()).ok());
  first->reset();
  EXPECT_EQ(budget_.used_bytes(), 0);
}

TEST_P(MemoryTest, RefusesWhatTheSystemDoesNotHave) {
  Budget unlimited("cpu:0", std::numeric_limits<int64_t>::max());
  const auto memory = AllocateMemory(unlimited, int64_t{1} << 60, GetParam());
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted) << memory.status();
  EXPECT_EQ(unlimited.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MemoryTest,
                         testing::Values(MemoryKind::kDevice, MemoryKind::kHostShared),
                         [](const auto& info) {
                           return info.param == MemoryKind::kDevice ? "device" : "shared";
                         });

TEST(SharedMemoryTest, OthersSeeWhatIsWritten) {
  Budget budget("cpu:0", kLimit);
  auto memory = AllocateMemory(budget, 5000, MemoryKind::kHostShared);
  ASSERT_TRUE(memory.ok());
  auto imported = ImportMemory(budget, (*memory)->shared_fd(), 5000);
  ASSERT_TRUE(imported.ok()) << imported.status();
  (*memory)->address()[4999] = std::byte{42};
  EXPECT_EQ((*imported)->address()[4999], std::byte{42});
  EXPECT_EQ(budget.used_bytes(), 10000);
  memory->reset();  // the import holds its own descriptor
  EXPECT_EQ((*imported)->address()[4999], std::byte{42});
}

TEST(SharedMemoryTest, CannotBeResizedOrResealed) {
  Budget budget("cpu:0", kLimit);
  auto memory = AllocateMemory(budget, 5000, MemoryKind::kHostShared);
  ASSERT_TRUE(memory.ok());
  const int fd = (*memory)->shared_fd();
  EXPECT_NE(ftruncate(fd, 4000), 0);
  EXPECT_NE(ftruncate(fd, 6000), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(AllocateMemory(budget, 10, MemoryKind::kDevice).value()->shared_fd(), -1);
}

TEST(ImportTest, TakesAFileSealedAgainstShrinking) {
  Budget budget("cpu:0", kLimit);
  const ClientFile file(8192, F_SEAL_SHRINK);
  auto memory = ImportMemory(budget, file.fd(), 8000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->size_bytes(), 8000);
  EXPECT_NE((*memory)->shared_fd(), file.fd());
}

TEST(ImportTest, RefusesUnsealedFiles) {
  Budget budget("cpu:0", kLimit);
  const ClientFile file(8192, F_SEAL_GROW);
  const auto memory = ImportMemory(budget, file.fd(), 8192);
  EXPECT_EQ(memory.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("F_SEAL_SHRINK"));
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(ImportTest, RefusesWhatIsNotAMemfd) {
  Budget budget("cpu:0", kLimit);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (int fd : {pipe_fds[0], file, -1, 1 << 20}) {
    EXPECT_EQ(ImportMemory(budget, fd, 100).status().code(), StatusCode::kFailedPrecondition) << fd;
  }
  for (int fd : {pipe_fds[0], pipe_fds[1], file}) close(fd);
}

TEST(ImportTest, RefusesFilesThatAreTooShort) {
  Budget budget("cpu:0", kLimit);
  const ClientFile file(4096, F_SEAL_SHRINK);
  const auto memory = ImportMemory(budget, file.fd(), 4097);
  EXPECT_EQ(memory.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("4096 bytes, fewer than the 4097"));
}

TEST(ImportTest, RefusesFilesSealedAgainstWriting) {
  Budget budget("cpu:0", kLimit);
  const ClientFile file(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
  EXPECT_EQ(ImportMemory(budget, file.fd(), 4096).status().code(), StatusCode::kFailedPrecondition);
}

TEST(MemoryKindTest, WhatOnlyAGpuHasIsNotImplemented) {
  Budget budget("cpu:0", kLimit);
  for (const MemoryKind kind : {MemoryKind::kDeviceShared, MemoryKind::kDeviceImported}) {
    const absl::Status refused = AllocateMemory(budget, 4096, kind).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("host shared memory"));
  }
  EXPECT_EQ(budget.used_bytes(), 0);
  auto memory = AllocateMemory(budget, 4096, MemoryKind::kHostShared);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ((*memory)->Share().status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd::kernels::cpu
