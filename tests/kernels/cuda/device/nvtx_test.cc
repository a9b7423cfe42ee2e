#include "kernels/cuda/device/nvtx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

std::vector<Program::Step> Steps(const std::vector<std::string_view>& kernels) {
  std::vector<Program::Step> steps;
  for (std::string_view kernel : kernels) {
    steps.push_back({.op = "matmul", .dtype = DType::kF32, .choice = {.kernel = kernel}});
  }
  return steps;
}

TEST(LaunchMessageTest, NamesKernelsInOrderAndCountsEqualOnes) {
  EXPECT_EQ(LaunchMessage(Steps({"a"})), "gemmd.launch a");
  EXPECT_EQ(LaunchMessage(Steps({"a", "b", "b", "b", "a"})), "gemmd.launch a, b x3, a");
  EXPECT_EQ(LaunchMessage({}), "gemmd.launch");
}

TEST(LaunchMessageTest, LeavesOutWhatGoesOnForever) {
  std::vector<std::string_view> kernels;
  for (int i = 0; i < 50; ++i) kernels.insert(kernels.end(), {"a", "b"});
  EXPECT_EQ(LaunchMessage(Steps(kernels)), "gemmd.launch a, b, a, b, a, b, a, b, ...");
}

// NVTX looks once a process for a profiler: each case has a process of its own.

TEST(LaunchRangeDeathTest, AProfilerSeesRangesWithinOneAnother) {
  const auto seen = [] {
    setenv("NVTX_INJECTION64_PATH", FAKE_NVTX_PATH, 1);
    {
      LaunchRange outer(7, Steps({"sm90_fp8", "cuda_copy"}));
      LaunchRange inner(8, Steps({"cuda_fill"}));
    }
    void* library = dlopen(FAKE_NVTX_PATH, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) _exit(3);
    const auto log = reinterpret_cast<const char* (*)()>(dlsym(library, "FakeNvtxLog"))();
    const bool right = std::string(log) ==
                       "domain gemmd\n"
                       "gemmd: push gemmd.launch sm90_fp8, cuda_copy, 7\n"
                       "gemmd: push gemmd.launch cuda_fill, 8\n"
                       "gemmd: pop\ngemmd: pop\n";
    if (!right) fprintf(stderr, "%s", log);
    _exit(right ? 0 : 1);
  };
  EXPECT_EXIT(seen(), testing::ExitedWithCode(0), "");
}

TEST(LaunchRangeDeathTest, WithoutAProfilerNothingIsLoaded) {
  const auto unseen = [] {
    unsetenv("NVTX_INJECTION64_PATH");
    { LaunchRange range(7, Steps({"sm90_fp8"})); }
    _exit(dlopen(FAKE_NVTX_PATH, RTLD_NOW | RTLD_NOLOAD) == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(unseen(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gemmd::kernels::cuda
