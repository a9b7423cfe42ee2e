#include "client/cli/moved_bench.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> LineOf(std::vector<std::string> args) {
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  return BenchCommandLine(pointers);
}

TEST(MovedBenchTest, WithoutASuiteItLoads) {
  EXPECT_THAT(LineOf({}), ElementsAre("gemmd_bench", "load"));
  EXPECT_THAT(LineOf({"--mode", "queue", "-c", "16"}),
              ElementsAre("gemmd_bench", "load", "--mode", "queue", "-c", "16"));
}

TEST(MovedBenchTest, ASuiteIsACommand) {
  EXPECT_THAT(LineOf({"--json", "--suite", "floor"}),
              ElementsAre("gemmd_bench", "floor", "--json"));
  EXPECT_THAT(LineOf({"--suite=soak", "--ops", "9"}),
              ElementsAre("gemmd_bench", "soak", "--ops", "9"));
}

TEST(MovedBenchTest, ASuiteWithoutANameIsLeftToTheParser) {
  EXPECT_THAT(LineOf({"--suite"}), ElementsAre("gemmd_bench", "load", "--suite"));
}

}  // namespace
}  // namespace gemmd::cli
