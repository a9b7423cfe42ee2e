// A kernel that faults on purpose, in a daemon that was built to have it (GEMMD_FAULT_KERNEL).
// Needs a Hopper GPU; what is kept from a second one, two.

#include <glob.h>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/seat.h"
#include "tests/e2e/supervised.h"

namespace gemmd::e2e {
namespace {

using client::Health;
using ::testing::HasSubstr;

constexpr char kFault[] = "fault_on_purpose";
constexpr int kNoDevice = 4;  // server/exit_status.h

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

void ExpectFenced(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(client::ReasonOf(status), "DEVICE_FENCED") << status;
}

TEST(FaultTest, AGpuIsFencedAndTheCpuOfItsProcessServesThroughout) {
  if (Gpus() == 0) GTEST_SKIP() << "no GPU";
  Daemon daemon({.devices = Entry("cuda:0") + Entry("cpu:0")});
  client::Client client = ConnectTo(daemon);
  Seat sick(client, "cuda:0");
  Seat well(client, "cpu:0");
  ASSERT_TRUE(sick.Multiply().ok());
  ASSERT_TRUE(well.Multiply().ok());
  EXPECT_EQ(Must(client.CheckHealth("cuda:0")), Health::kServing);
  {
    Throughout throughout([&] { return well.Multiply(); });
    ExpectFenced(sick.Multiply(kFault));
    ExpectFenced(sick.Multiply());
    ExpectFenced(sick.a.Upload(Floats(std::vector<float>(16))).status());
    EXPECT_TRUE(
        WaitUntil([&] { return Must(client.CheckHealth("cuda:0")) == Health::kNotServing; }));
    EXPECT_EQ(Must(client.CheckHealth("cpu:0")), Health::kServing);
    EXPECT_EQ(Must(client.CheckHealth("")), Health::kServing);
    for (const v1::Device& device : Must(client.ListDevices())) {
      EXPECT_EQ(device.state(),
                device.name() == "cpu:0" ? v1::Device::STATE_SERVING : v1::Device::STATE_FENCED);
    }
    EXPECT_EQ(Must(client.OpenSession()).device(), "cpu:0");
    throughout.AwaitMore(3);
  }
  EXPECT_THAT(daemon.LogWith("device_fenced"), HasSubstr("device_fenced"));
  EXPECT_EQ(daemon.Stop(), 0);
}

// A sticky error is the process's, not the GPU's: every CUDA call of the process fails from then
// on, those for the other GPU and its work in flight too, with peer access or without, by the
// runtime or by the driver's API, in primary contexts or in others (seen on two H200, driver
// 580.159.04, CUDA 13.0). So the other GPU is fenced as soon as it is used, and then there is none
// left.
TEST(FaultTest, AFaultTakesTheOtherGpusOfItsProcessAlong) {
  if (Gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Daemon daemon({.devices = Entry("cuda:0") + Entry("cuda:1")});
  client::Client client = ConnectTo(daemon);
  Seat sick(client, "cuda:0");
  Seat well(client, "cuda:1");
  ASSERT_TRUE(sick.Multiply().ok());
  ASSERT_TRUE(well.Multiply().ok());
  ExpectFenced(sick.Multiply(kFault));
  ExpectFenced(well.Multiply());
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(30)), kNoDevice);
}

// What keeps one GPU's fault from the other: a process for each.
TEST(FaultTest, SupervisedTheOtherGpuServesThroughoutAndTheFaultedOneComesBack) {
  if (Gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Supervised gemmd(Entry("cuda:0") + Entry("cuda:1"), "drain { notice_ms: 50 limit_ms: 20000 }");
  const auto connect = [&](const std::string& device) {
    return Must(client::Client::Connect(gemmd.target(device)));
  };
  client::Client sick_client = connect("cuda:0");
  client::Client well_client = connect("cuda:1");
  Seat sick(sick_client, "cuda:0");
  Seat well(well_client, "cuda:1");
  ASSERT_TRUE(sick.Multiply().ok());
  ASSERT_TRUE(well.Multiply().ok());
  const pid_t faulted = gemmd.pid("cuda:0");
  const pid_t other = gemmd.pid("cuda:1");
  const Place place = gemmd.places()["cuda:0"];
  ASSERT_GT(faulted, 0);
  ASSERT_GT(other, 0);

  Throughout throughout([&] { return well.Multiply(); });
  throughout.AwaitMore(3);
  ExpectFenced(sick.Multiply(kFault));
  EXPECT_TRUE(WaitUntil([&] { return !Runs(faulted); }, absl::Seconds(30)));
  throughout.AwaitMore(3);
  EXPECT_TRUE(WaitUntil([&] { return gemmd.places()["cuda:0"] != place; }, absl::Minutes(1)));
  EXPECT_THAT(gemmd.log(), HasSubstr(absl::StrCat("child_ended device=\"cuda:0\" pid=", faulted,
                                                  " status=", kNoDevice)));
  client::Client back = connect("cuda:0");
  EXPECT_TRUE(Seat(back, "cuda:0").Multiply().ok());
  throughout.AwaitMore(3);
  EXPECT_EQ(gemmd.pid("cuda:1"), other);
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
