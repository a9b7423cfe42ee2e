// A kernel that faults on purpose, in a daemon that was built to have it (GEMMD_FAULT_KERNEL).
// Needs a Hopper GPU; with two, the second serves on, and the CPU does in any case.

#include <glob.h>

#include <atomic>
#include <thread>

#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Fill;
using client::Health;
using client::Matmul;
using client::OpList;
using client::Read;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kFault[] = "fault_on_purpose";
constexpr int kNoDevice = 4;  // server/main.cc

// By their nodes, whatever their numbers: a container may see any of the machine's.
size_t Gpus() {
  glob_t found;
  const size_t count = glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  globfree(&found);
  return count;
}

std::string Entry(const std::string& device) {
  return "devices { name: \"" + device + "\" memory_bytes: 1073741824 }\n";
}

// A session on one device, and one row to multiply there.
struct Seat {
  Seat(client::Client& client, const std::string& device)
      : session(Must(client.OpenSession({.device = device}))),
        a(MakeBuffer(session, {1, 16})),
        b(MakeBuffer(session, {16, 16})),
        d(MakeBuffer(session, {1, 16})) {}

  absl::Status Multiply(const std::string& kernel = "") {
    OpList ops;
    ops.Add(Fill{a.tensor(), 1}).Add(Fill{b.tensor(), 2});
    ops.Add(Matmul{.a = a.tensor(), .b = b.tensor(), .d = d.tensor(), .kernel = kernel});
    ops.Add(Read{d.tensor()});
    const absl::StatusOr<client::Result> result = session.Execute(ops);
    if (!result.ok()) return result.status();
    EXPECT_THAT(FloatsOf(*result), Each(32.0f));
    return absl::OkStatus();
  }

  client::Session session;
  client::Buffer a, b, d;
};

void ExpectFenced(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(client::ReasonOf(status), "DEVICE_FENCED") << status;
}

TEST(FaultTest, OneOfTwoDevicesIsFencedAndTheOtherServesThroughout) {
  if (Gpus() == 0) GTEST_SKIP() << "no GPU";
  const std::string healthy = Gpus() > 1 ? "cuda:1" : "cpu:0";
  Daemon daemon({.devices = Entry("cuda:0") + Entry(healthy)});
  client::Client client = ConnectTo(daemon);
  Seat sick(client, "cuda:0");
  Seat well(client, healthy);
  ASSERT_TRUE(sick.Multiply().ok());
  ASSERT_TRUE(well.Multiply().ok());
  EXPECT_EQ(Must(client.CheckHealth("cuda:0")), Health::kServing);

  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::thread throughout([&] {
    while (!stop) {
      const absl::Status status = well.Multiply();
      EXPECT_TRUE(status.ok()) << status;
      ++served;
    }
  });
  ExpectFenced(sick.Multiply(kFault));
  ExpectFenced(sick.Multiply());
  ExpectFenced(sick.a.Upload(Floats(std::vector<float>(16))).status());
  EXPECT_TRUE(WaitUntil([&] { return Must(client.CheckHealth("cuda:0")) == Health::kNotServing; }));
  EXPECT_EQ(Must(client.CheckHealth(healthy)), Health::kServing);
  EXPECT_EQ(Must(client.CheckHealth("")), Health::kServing);
  for (const v1::Device& device : Must(client.ListDevices())) {
    EXPECT_EQ(device.state(),
              device.name() == healthy ? v1::Device::STATE_SERVING : v1::Device::STATE_FENCED);
  }
  EXPECT_EQ(Must(client.OpenSession()).device(), healthy);
  const int before = served;
  EXPECT_TRUE(WaitUntil([&] { return served > before + 3; }));
  stop = true;
  throughout.join();
  EXPECT_THAT(daemon.log(), HasSubstr("device_fenced"));
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(FaultTest, WithoutADeviceTheDaemonEndsWithItsOwnStatus) {
  if (Gpus() == 0) GTEST_SKIP() << "no GPU";
  Daemon daemon({.devices = Entry("cuda:0")});
  client::Client client = ConnectTo(daemon);
  Seat seat(client, "cuda:0");
  ASSERT_TRUE(seat.Multiply().ok());
  ExpectFenced(seat.Multiply(kFault));
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(30)), kNoDevice);
}

}  // namespace
}  // namespace gemmd::e2e
