#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "gtest/gtest.h"
#include "server/service/listen/listener.h"
#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

TEST(DeviceServiceTest, TellsTheNodeThatADeviceIsBoundToAndWhatItHoldsPinned) {
  EnableListenerPlugins();
  FakeDevice device;
  device.pinned_bytes = 1 << 20;
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (const int node : {-1, 0, 2}) {
    backends.push_back(std::make_unique<FakeBackend>(device, absl::StrCat("fake:", backends.size()),
                                                     /*gpu_uuid=*/"", node));
  }
  Config config;
  config.tenants = {{.name = "red"}};
  FakeClock clock;
  Log log(LogConfig{.level = LogLevel::kError});
  Metrics metrics("test");
  LiveCalls live;
  StreamRegistry streams;
  guard::Connections connections(
      {.max = 8, .max_per_peer = 8, .max_streams = 8, .max_unfinished_bytes = 1 << 20},
      [](auto, auto) {});
  const grpc::ResourceQuota quota;
  const auto state =
      ServerState::Create(config, std::move(backends), clock, log, metrics, "instance");
  ASSERT_TRUE(state.ok()) << state.status();
  const std::string address = absl::StrCat("unix-abstract:gemmd-devices-", getpid());
  const auto listener = Listener::Start({.address = address, .tenant = "red"},
                                        {**state, live, streams, connections, quota});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto stub =
      v1::DeviceService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::ListDevicesResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->ListDevices(&context, v1::ListDevicesRequest(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.devices_size(), 3);
  EXPECT_FALSE(response.devices(0).has_numa_node());
  ASSERT_TRUE(response.devices(1).has_numa_node());
  EXPECT_EQ(response.devices(1).numa_node(), 0);
  EXPECT_EQ(response.devices(2).numa_node(), 2);
  EXPECT_EQ(response.devices(2).pinned_bytes(), 1 << 20);
}

}  // namespace
}  // namespace gemmd::server
