#include "kernels/cuda/tuning/table_folder.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class TableFolderTest : public testing::Test {
 protected:
  TableFolderTest()
      : folder_(testing::TempDir() + "/tables_of_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~TableFolderTest() override { std::filesystem::remove_all(folder_); }

  void Put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  void PutTable(const std::string& name, std::string_view model, int64_t m) {
    TuningTable table;
    table.Set({m, 4096, 7168}, {{"some kernel", 12e-6}});
    Put(name, table.Serialize(model, "580.1", "2026-11-25"));
  }

  const std::string folder_;
};

TEST_F(TableFolderTest, TheTableOfThisModelIsTaken) {
  PutTable("a.json", "NVIDIA H100", 16);
  PutTable("b.json", "NVIDIA H200", 64);
  Put("notes.txt", "not a table");
  const auto times = LoadTables(folder_, "NVIDIA H200");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(times->note, IsEmpty());
  EXPECT_EQ(times->table.size(), 1);
  EXPECT_EQ(times->table.Find({64, 4096, 7168}).key.m, 64);
}

TEST_F(TableFolderTest, SeveralOfAModelAreOne) {
  PutTable("a.json", "NVIDIA H200", 16);
  PutTable("b.json", "NVIDIA H200", 64);
  const auto times = LoadTables(folder_, "NVIDIA H200");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->table.size(), 2);
}

TEST_F(TableFolderTest, NoneOfThisModelIsTold) {
  PutTable("a.json", "NVIDIA H100", 16);
  const auto times = LoadTables(folder_, "NVIDIA H200");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->table.size(), 0);
  EXPECT_THAT(times->note, AllOf(HasSubstr(folder_), HasSubstr("none of 1"),
                                 HasSubstr("NVIDIA H200"), HasSubstr("gemmctl tune")));
}

TEST_F(TableFolderTest, AFileThatIsNoTableIsNamed) {
  Put("broken.json", "{");
  const absl::Status broken = LoadTables(folder_, "NVIDIA H200").status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("broken.json"));
  Put("broken.json", "{\"gpu\": 1}");
  EXPECT_THAT(std::string(LoadTables(folder_, "NVIDIA H200").status().message()),
              AllOf(HasSubstr("broken.json"), HasSubstr("gpu is not a string")));
}

TEST_F(TableFolderTest, AFileIsLoadedAsBefore) {
  PutTable("a.json", "NVIDIA H100", 16);
  EXPECT_EQ(LoadTables(folder_ + "/a.json", "NVIDIA H100")->table.size(), 1);
  EXPECT_EQ(LoadTables(folder_ + "/a.json", "NVIDIA H200").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(LoadTables(folder_ + "/none", "NVIDIA H200").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
