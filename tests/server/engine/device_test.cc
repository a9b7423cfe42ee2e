// What a device counts as its own memory.

#include "server/engine/scheduling/device.h"

#include <gtest/gtest.h>

#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using kernels::MemoryKind;

// Bytes used after a buffer of 100 bytes of each kind but a shared allocation of device memory.
int64_t UsedBytes(const std::string& gpu_uuid) {
  FakeDevice fake;
  FakeClock clock;
  Metrics metrics("test");
  Timeline timeline;
  Device device(std::make_unique<FakeBackend>(fake, "fake:0", gpu_uuid), {}, clock, metrics,
                timeline);
  const MemoryKind kinds[] = {MemoryKind::kDevice, MemoryKind::kHostShared,
                              MemoryKind::kDeviceImported};
  for (const MemoryKind kind : kinds) device.AddBuffer(kind, 100);
  const int64_t used = device.used_bytes();
  EXPECT_EQ(device.buffers(), 3);
  for (const MemoryKind kind : kinds) device.RemoveBuffer(kind, 100);
  EXPECT_EQ(device.used_bytes(), 0);
  EXPECT_EQ(device.buffers(), 0);
  return used;
}

TEST(DeviceTest, SharedHostMemoryIsACpusOwn) { EXPECT_EQ(UsedBytes(""), 200); }

TEST(DeviceTest, SharedHostMemoryIsNoneOfAGpus) { EXPECT_EQ(UsedBytes("GPU-5c3f"), 100); }

}  // namespace
}  // namespace gemmd::server
