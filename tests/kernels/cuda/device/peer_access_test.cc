// Peer access as far as it goes without a device.

#include "kernels/cuda/device/peer_access.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fault.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

DeviceInfo Gpu(int ordinal) {
  DeviceInfo info;
  info.name = "cuda:" + std::to_string(ordinal);
  info.gpu_ordinal = ordinal;
  return info;
}

class PeerAccessTest : public testing::Test {
 protected:
  Fence fence_{"cuda:0"};
  PeerAccess peers_{"cuda:0", 0, fence_};
};

TEST_F(PeerAccessTest, ItsOwnMemoryNeedsNone) { EXPECT_TRUE(peers_.Enable(Gpu(0)).ok()); }

TEST_F(PeerAccessTest, AHostsMemoryIsRefusedWithTheRemedy) {
  DeviceInfo cpu;
  cpu.name = "cpu:0";
  const absl::Status refused = peers_.Enable(cpu);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(
      std::string(refused.message()),
      "cuda:0 cannot reach memory of cpu:0, which is no GPU; download the data and upload it to "
      "cuda:0");
}

TEST_F(PeerAccessTest, AFencedDeviceGivesItsFault) {
  fence_.Raise(absl::InternalError("smoke")).IgnoreError();
  EXPECT_TRUE(IsDeviceFault(peers_.Enable(Gpu(0))));
  EXPECT_TRUE(IsDeviceFault(peers_.Enable(Gpu(1))));
}

TEST_F(PeerAccessTest, ADriverThatIsNotThereIsAnErrorOfItsOwn) {
  if (WhyNoDevice().empty()) GTEST_SKIP() << "there is a device";
  const absl::Status failed = peers_.Enable(Gpu(1));
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr("whether cuda:0 can map memory of cuda:1"));
  EXPECT_TRUE(fence_.status().ok());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
