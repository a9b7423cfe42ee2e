#include "server/engine/share/share_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

UniqueFd Memfd(size_t bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(ShareRecordTest, IsReadAsItWasWritten) {
  const std::string record("any\0bytes", 9);
  const auto fd = WriteRecord(record);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(*ReadRecord(fd->get()), record);
  EXPECT_EQ(*ReadRecord(fd->get()), record);  // from its beginning, whatever was read before
}

TEST(ShareRecordTest, CannotBeChanged) {
  const auto fd = WriteRecord("fixed");
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(pwrite(fd->get(), "x", 1, 0), -1);
  EXPECT_NE(ftruncate(fd->get(), 1), 0);
}

TEST(ShareRecordTest, AFileThatCouldBlockOrShrinkIsNotRead) {
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const UniqueFd empty(pipes[0]);
  const UniqueFd writer(pipes[1]);
  EXPECT_EQ(ReadRecord(empty.get()).status().code(), absl::StatusCode::kFailedPrecondition);
  const UniqueFd unsealed = Memfd(16, 0);
  EXPECT_THAT(std::string(ReadRecord(unsealed.get()).status().message()),
              HasSubstr("F_SEAL_SHRINK"));
}

TEST(ShareRecordTest, ALongFileIsNotRead) {
  EXPECT_TRUE(ReadRecord(Memfd(kMaxRecordBytes, F_SEAL_SHRINK).get()).ok());
  const auto status = ReadRecord(Memfd(kMaxRecordBytes + 1, F_SEAL_SHRINK).get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4097"));
}

}  // namespace
}  // namespace gemmd::server
