#include "kernels/cuda/device/host_node.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A machine that this test makes up: a folder in the place of /sys.
class HostNodeTest : public testing::Test {
 protected:
  HostNodeTest() {
    std::string folder = testing::TempDir() + "/gemmd_sysfs_XXXXXX";
    if (mkdtemp(folder.data()) != nullptr) root_ = folder;
  }
  ~HostNodeTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // What the kernel writes.
  void Machine(const std::string& node, const std::string& cpulist) {
    Write("bus/pci/devices/0000:1b:00.0/numa_node", node);
    Write("devices/system/node/node1/cpulist", cpulist);
  }
  HostNode Find(const std::string& bus_id = "0000:1b:00.0") {
    return FindHostNode(bus_id, usable_, root_);
  }
  void ExpectNone(const HostNode& found) {
    EXPECT_EQ(found.node, -1);
    EXPECT_THAT(found.cpus, IsEmpty());
  }

  std::string root_;
  std::vector<int> usable_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
};

TEST_F(HostNodeTest, TheNodeAndItsCpusAreFoundByBusIdInEitherCase) {
  Machine("1\n", "0-3,8-11\n");
  for (const char* id : {"0000:1b:00.0", "0000:1B:00.0"}) {
    const HostNode found = Find(id);
    EXPECT_EQ(found.node, 1) << id;
    EXPECT_THAT(found.cpus, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11)) << id;
  }
}

TEST_F(HostNodeTest, SingleCpusAndRangesThatMeetAreRead) {
  Machine("1", "5,0-1,1-2");
  EXPECT_THAT(Find().cpus, ElementsAre(0, 1, 2, 5));
}

TEST_F(HostNodeTest, OnlyCpusThatTheProcessMayUseCount) {
  Machine("1\n", "0-3,8-11\n");
  usable_ = {3, 4, 5, 8};
  EXPECT_THAT(Find().cpus, ElementsAre(3, 8));
  usable_ = {4, 5, 6, 7};
  ExpectNone(Find());
  usable_ = {};
  ExpectNone(Find());
}

TEST_F(HostNodeTest, AMachineThatTellsNoNodeHasNone) {
  Machine("-1\n", "0-3\n");
  ExpectNone(Find());
  ExpectNone(Find("0000:1c:00.0"));
  Write("bus/pci/devices/0000:1c:00.0/numa_node", "7\n");
  ExpectNone(Find("0000:1c:00.0"));  // a node without a list of cpus
}

TEST_F(HostNodeTest, ANodeWithoutCpusIsNone) {
  Machine("1\n", "\n");
  ExpectNone(Find());
}

TEST_F(HostNodeTest, NonsenseIsNone) {
  for (const char* node : {"", "\n", "one", "1x", "0x1", "+1", "1 1", "1.0", "99999999999"}) {
    Machine(node, "0-3\n");
    ExpectNone(Find());
  }
  for (const char* list : {"0-", "-3", "3-0", "0-3,", ",0", "0-3-5", "0-3;8", "a", "0-3\n8",
                           "0-99999999999", "0 - 3", "0-31:2/4"}) {
    Machine("1", list);
    ExpectNone(Find());
  }
}

TEST_F(HostNodeTest, AListOfMoreCpusThanAnyMachineHasCostsNothing) {
  Machine("1", "2-2147483647");
  EXPECT_THAT(Find().cpus, ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST_F(HostNodeTest, ABusIdIsNoPath) {
  Machine("1\n", "0-3\n");
  Write("numa_node", "1\n");
  for (const std::string id : {"", "../../..", "0000:1b:00.0/", "0000:1b:00.0\n", "*"}) {
    ExpectNone(Find(id));
  }
}

TEST(HostNodeOfThisMachineTest, AThreadIsBoundAndTheOthersAreNot) {
  const std::vector<int> before = UsableCpus();
  ASSERT_FALSE(before.empty());
  const HostNode last{.node = 0, .cpus = {before.back()}};
  std::vector<int> bound;
  std::thread([&] {
    EXPECT_TRUE(BindToNode(last).ok());
    bound = UsableCpus();
  }).join();
  EXPECT_THAT(bound, ElementsAre(before.back()));
  EXPECT_EQ(UsableCpus(), before);
}

TEST(HostNodeOfThisMachineTest, WorkRunsOnTheNodeAndTheCallerStaysWhereItWas) {
  const std::vector<int> before = UsableCpus();
  ASSERT_FALSE(before.empty());
  std::vector<int> during;
  int runs = 0;
  const absl::Status status = RunOnNode({.node = 0, .cpus = {before.front()}}, [&] {
    during = UsableCpus();
    ++runs;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(during, ElementsAre(before.front()));
  EXPECT_EQ(UsableCpus(), before);
}

TEST(HostNodeOfThisMachineTest, WithoutANodeWorkRunsHere) {
  std::thread::id ran_on;
  EXPECT_TRUE(RunOnNode({}, [&] { ran_on = std::this_thread::get_id(); }).ok());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_TRUE(BindToNode({}).ok());
}

TEST(HostNodeOfThisMachineTest, WorkRunsUnboundWhereBindingIsRefused) {
  // Above any cpu that is there: nothing is left of the mask.
  const HostNode absent{.node = 3, .cpus = {1023}};
  const std::vector<int> before = UsableCpus();
  if (before.back() == 1023) GTEST_SKIP() << "this machine has a cpu 1023";
  std::vector<int> during;
  const absl::Status status = RunOnNode(absent, [&] { during = UsableCpus(); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("node 3"), HasSubstr("; let")));
  EXPECT_EQ(during, before);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
