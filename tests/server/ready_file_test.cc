#include "server/ready_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

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

TEST_F(ReadyFileTest, OneInAFolderThatIsNotThereSaysSo) {
  EXPECT_THAT(std::string(WriteReadyFile(dir_ + "/no/ready", "one\n").message()),
              HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace gemmd::server
