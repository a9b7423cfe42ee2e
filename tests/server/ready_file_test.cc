#include "server/ready_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/engine/replace_file.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReadyFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gemmd_ready.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  int Files() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }

  std::string dir_;
};

TEST_F(ReadyFileTest, IsReplacedWhole) {
  EXPECT_TRUE(WriteReadyFile(dir_ + "/ready", "one\n").ok());
  EXPECT_TRUE(WriteReadyFile(dir_ + "/ready", "two\n").ok());
  std::ifstream file(dir_ + "/ready");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "two\n");
  EXPECT_EQ(Files(), 1);
}

TEST_F(ReadyFileTest, OneThatCannotBePutInPlaceLeavesNothingAndSaysWhy) {
  std::filesystem::create_directory(dir_ + "/ready");
  const absl::Status status = WriteReadyFile(dir_ + "/ready", "one\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(dir_ + "/ready"), HasSubstr("Is a directory")));
  EXPECT_EQ(Files(), 1);
}

// As root it was: of /dev/stdout, a machine's own.
TEST_F(ReadyFileTest, WhatIsNoFileIsNotReplacedByOne) {
  const std::string pipe = dir_ + "/pipe", link = dir_ + "/link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/stdout", link);
  for (const std::string& path : {pipe, link}) {
    EXPECT_THAT(std::string(WriteReadyFile(path, "one\n").message()),
                AllOf(HasSubstr(path), HasSubstr("--ready-fd")));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReplaceFile(pipe, "{}", {}), EEXIST);
  EXPECT_EQ(ReplaceFile(link, "{}", {}), 0);  // a link's place is taken, as by any rename
  EXPECT_EQ(Files(), 2);
}

TEST_F(ReadyFileTest, OneInAFolderThatIsNotThereSaysSo) {
  EXPECT_THAT(std::string(WriteReadyFile(dir_ + "/no/ready", "one\n").message()),
              HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace gemmd::server
