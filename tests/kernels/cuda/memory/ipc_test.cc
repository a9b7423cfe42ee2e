// What is told of a CUDA IPC handle without a device.

#include "kernels/cuda/memory/ipc.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/memory/heap.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

DeviceHandle Good() {
  return {.handle = std::string(64, 'h'),
          .offset_bytes = 256,
          .size_bytes = 100,
          .gpu_uuid = "GPU-here"};
}
const IpcDevice kDevice = {.name = "cuda:0", .gpu_uuid = "GPU-here", .ordinal = 0};

struct Case {
  const char* what;
  StatusCode code;
  std::vector<std::string> says;
  DeviceHandle handle;
};

template <typename Change>
DeviceHandle With(Change change) {
  DeviceHandle handle = Good();
  change(handle);
  return handle;
}

TEST(IpcHandleTest, OneThatCouldBeOpenedPasses) {
  EXPECT_TRUE(CheckIpcHandle(Good(), kDevice).ok());
}

TEST(IpcHandleTest, WhatCannotBeOpenedIsRefusedByName) {
  const std::vector<Case> cases = {
      {"no handle", StatusCode::kInvalidArgument, {"0 bytes", "64"}, With([](auto& h) {
         h.handle.clear();
       })},
      {"a long handle", StatusCode::kInvalidArgument, {"65 bytes"}, With([](auto& h) {
         h.handle += 'x';
       })},
      {"nothing", StatusCode::kInvalidArgument, {"size_bytes=0"}, With([](auto& h) {
         h.size_bytes = 0;
       })},
      {"before the base", StatusCode::kInvalidArgument, {"offset_bytes=-256"}, With([](auto& h) {
         h.offset_bytes = -256;
       })},
      {"an end beyond int64", StatusCode::kInvalidArgument, {"no range"}, With([](auto& h) {
         h.size_bytes = std::numeric_limits<int64_t>::max();
       })},
      {"between two aligned places",
       StatusCode::kInvalidArgument,
       {"257", "256", "tensors"},
       With([](auto& h) { h.offset_bytes = 257; })},
      {"another GPU",
       StatusCode::kFailedPrecondition,
       {"GPU-there", "GPU-here", "cuda:0"},
       With([](auto& h) { h.gpu_uuid = "GPU-there"; })},
      {"no GPU", StatusCode::kFailedPrecondition, {"without a UUID"}, With([](auto& h) {
         h.gpu_uuid.clear();
       })},
  };
  for (const Case& one : cases) {
    const absl::Status status = CheckIpcHandle(one.handle, kDevice);
    EXPECT_EQ(status.code(), one.code) << one.what << ": " << status;
    for (const std::string& part : one.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << one.what;
    }
  }
}

TEST(HeapTest, WhatIsSharedTakesWholeBlocks) {
  EXPECT_EQ(Heap::RoundedAlone(1), 2 << 20);
  EXPECT_EQ(Heap::RoundedAlone(2 << 20), 2 << 20);
  EXPECT_EQ(Heap::RoundedAlone((2 << 20) + 1), 4 << 20);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
