#include "kernels/cpu/cgroup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>

namespace gemmd::kernels::cpu {

void PrintTo(const CgroupLimits& limits, std::ostream* out) {
  *out << limits.memory_bytes << " B, " << limits.cpus << " processors";
}

namespace {

// A machine's /proc and /sys/fs/cgroup, as far as they are looked at.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gemmd_cgroup.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // What mountinfo says of a v2 hierarchy.
  void MountV2(const std::string& group = "/") {
    Put("/proc/self/mountinfo", "25 1 0:23 / / rw - ext4 /dev/vda1 rw\n42 25 0:27 " + group +
                                    " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  void MountV1(const std::string& group = "/") {
    Put("/proc/self/mountinfo",
        "33 25 0:29 " + group +
            " /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n35 25 0:31 " +
            group + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
            "41 25 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }
  CgroupLimits Limits() const { return ReadCgroupLimits(root_); }

  std::string root_;
};

TEST_F(CgroupTest, WithoutGroupsNothingLimits) {
  EXPECT_EQ(Limits(), CgroupLimits());
  MountV2();
  EXPECT_EQ(Limits(), CgroupLimits());
  Put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Limits(), CgroupLimits());
}

TEST_F(CgroupTest, AContainersOwnGroupIsItsRoot) {
  MountV2();
  Put("/proc/self/cgroup", "0::/\n");
  Put("/sys/fs/cgroup/memory.max", "419430400\n");
  Put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(Limits(), (CgroupLimits{.memory_bytes = 419430400, .cpus = 1.5}));
}

// A unit with MemoryMax= in a slice with a smaller one, and CPUQuota= the other way round.
TEST_F(CgroupTest, TheSmallestLimitOfASystemdUnitAndItsSlicesHolds) {
  MountV2();
  Put("/proc/self/cgroup", "0::/compute.slice/compute-gpu.slice/gemmd.service\n");
  const std::string slice = "/sys/fs/cgroup/compute.slice/compute-gpu.slice";
  Put(slice + "/gemmd.service/memory.max", "8589934592\n");
  Put(slice + "/gemmd.service/cpu.max", "200000 100000\n");
  Put(slice + "/memory.max", "4294967296\n");
  Put(slice + "/cpu.max", "max 100000\n");
  Put("/sys/fs/cgroup/compute.slice/memory.max", "max\n");
  Put("/sys/fs/cgroup/compute.slice/cpu.max", "800000 100000\n");
  EXPECT_EQ(Limits(), (CgroupLimits{.memory_bytes = 4294967296, .cpus = 2}));
}

TEST_F(CgroupTest, MaxEverywhereIsNoLimit) {
  MountV2();
  Put("/proc/self/cgroup", "0::/system.slice/gemmd.service\n");
  for (const char* group : {"/system.slice/gemmd.service", "/system.slice"}) {
    Put("/sys/fs/cgroup" + std::string(group) + "/memory.max", "max\n");
    Put("/sys/fs/cgroup" + std::string(group) + "/cpu.max", "max 100000\n");
  }
  EXPECT_EQ(Limits(), CgroupLimits());
}

TEST_F(CgroupTest, Version1HasAHierarchyForEachController) {
  MountV1();
  Put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/batch/gemmd\n2:cpu,cpuacct:/batch\n0::/\n");
  Put("/sys/fs/cgroup/memory/batch/gemmd/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "419430400\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "50000\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Limits(), (CgroupLimits{.memory_bytes = 419430400, .cpus = 0.5}));
}

// Docker on v1: the group's name is the host's, and its folder is what is mounted.
TEST_F(CgroupTest, AGroupThatIsMountedAsARootIsFoundThere) {
  Put("/proc/self/cgroup", "4:memory:/docker/5f3a\n2:cpu,cpuacct:/docker/5f3a\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "419430400\n");
  MountV1("/docker/5f3a");
  EXPECT_EQ(Limits(), (CgroupLimits{.memory_bytes = 419430400}));
  MountV1("/");  // of a container whose mounts are in a namespace of their own
  EXPECT_EQ(Limits(), (CgroupLimits{.memory_bytes = 419430400}));
}

TEST_F(CgroupTest, AGroupBelowTheMountedOneIsFoundBelow) {
  MountV2("/kubepods/pod7");
  Put("/proc/self/cgroup", "0::/kubepods/pod7/gemmd\n");
  Put("/sys/fs/cgroup/gemmd/memory.max", "1073741824\n");
  Put("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(Limits().memory_bytes, 536870912);
}

TEST_F(CgroupTest, AGroupOutsideOfTheNamespaceTakesWhatIsMounted) {
  MountV2();
  Put("/proc/self/cgroup", "0::/../../system.slice/gemmd.service\n");
  Put("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(Limits().memory_bytes, 536870912);
}

TEST_F(CgroupTest, WhatIsNoNumberLimitsNothing) {
  MountV2();
  Put("/proc/self/cgroup", "0::/a\nnonsense\n");
  Put("/sys/fs/cgroup/a/memory.max", "lots\n");
  Put("/sys/fs/cgroup/a/cpu.max", "100000\n");
  EXPECT_EQ(Limits(), CgroupLimits());
}

}  // namespace
}  // namespace gemmd::kernels::cpu
