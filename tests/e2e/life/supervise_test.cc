// gemmd --supervise: a process a device. One that ends comes back, the others notice nothing.

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/scrape.h"
#include "tests/e2e/seat.h"
#include "tests/e2e/supervised.h"

namespace gemmd::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kDrain[] = "drain { notice_ms: 50 limit_ms: 20000 }";
constexpr char kDevices[] =
    "devices { name: \"cpu:0\" memory_bytes: 268435456 threads: 1 }\n"
    "devices { name: \"cpu:1\" memory_bytes: 268435456 threads: 1 }\n";

class SuperviseTest : public testing::Test {
 protected:
  client::Client Connect(const std::string& device) {
    return Must(client::Client::Connect(gemmd_.target(device)));
  }
  int MaxOps(const std::string& device) {
    return Must(Connect(device).GetServerInfo()).limits().max_ops();
  }
  // Waits for the process that comes after `gone`, and for it to serve.
  void AwaitSuccessor(const std::string& device, pid_t gone, const Place& old_place) {
    EXPECT_TRUE(WaitUntil([&] {
      const pid_t pid = gemmd_.pid(device);
      return pid != 0 && pid != gone && gemmd_.places()[device] != old_place;
    }));
    client::Client client = Connect(device);
    EXPECT_TRUE(Seat(client, device).Multiply().ok());
  }
  std::vector<pid_t> Pids() {
    std::vector<pid_t> pids = {gemmd_.pid("cpu:0"), gemmd_.pid("cpu:1")};
    for (const pid_t pid : pids) EXPECT_TRUE(pid > 0 && Runs(pid)) << pid;
    return pids;
  }
  bool AllEnd(const std::vector<pid_t>& pids) {
    return WaitUntil([&] { return std::none_of(pids.begin(), pids.end(), Runs); });
  }

  Supervised gemmd_{kDevices, kDrain};
};

TEST_F(SuperviseTest, EachDeviceHasAProcessThatServesNothingElse) {
  const auto places = gemmd_.places();
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_NE(gemmd_.pid("cpu:0"), gemmd_.pid("cpu:1"));
  for (const std::string device : {"cpu:0", "cpu:1"}) {
    const Place& place = places.at(device);
    ASSERT_THAT(place.addresses, SizeIs(2));
    EXPECT_EQ(place.addresses[1], gemmd_.target(device));
    EXPECT_EQ(Sum(Scrape(place.metrics), "gemmd_device_state", "device=\"" + device + "\""), 1);
    for (const std::string& address : place.addresses) {
      client::Client client = Must(client::Client::Connect(address));
      const auto devices = Must(client.ListDevices());
      ASSERT_THAT(devices, SizeIs(1)) << address;
      EXPECT_EQ(devices[0].name(), device);
      EXPECT_TRUE(Seat(client, device).Multiply().ok());
    }
  }
}

TEST_F(SuperviseTest, OneThatIsKilledComesBackWhileTheOtherServes) {
  client::Client client = Connect("cpu:1");
  Seat well(client, "cpu:1");
  Throughout throughout([&] { return well.Multiply(); });
  const pid_t other = gemmd_.pid("cpu:1");
  for (int i = 0; i < 2; ++i) {
    const pid_t killed = gemmd_.pid("cpu:0");
    const Place place = gemmd_.places()["cpu:0"];
    ASSERT_GT(killed, 0);
    throughout.AwaitMore(3);
    kill(killed, SIGKILL);
    throughout.AwaitMore(3);
    AwaitSuccessor("cpu:0", killed, place);
    throughout.AwaitMore(3);
  }
  EXPECT_EQ(gemmd_.pid("cpu:1"), other);
}

TEST_F(SuperviseTest, OneThatDrainsAloneComesBackToo) {
  const pid_t drained = gemmd_.pid("cpu:1");
  const Place place = gemmd_.places()["cpu:1"];
  ASSERT_GT(drained, 0);
  kill(drained, SIGTERM);
  AwaitSuccessor("cpu:1", drained, place);
  EXPECT_TRUE(gemmd_.process().running());
}

TEST_F(SuperviseTest, ASignalDrainsAll) {
  const std::vector<pid_t> pids = Pids();
  EXPECT_EQ(gemmd_.Stop(), 0);
  for (const pid_t pid : pids) EXPECT_FALSE(Runs(pid));
  for (const std::string device : {"cpu:0", "cpu:1"}) {
    EXPECT_NE(access(gemmd_.target(device).substr(5).c_str(), F_OK), 0);
  }
}

TEST_F(SuperviseTest, ASignalWhileOneIsDownEndsTheRest) {
  const std::vector<pid_t> pids = Pids();
  kill(pids[0], SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return gemmd_.pid("cpu:0") == 0; }));
  gemmd_.process().Signal(SIGINT);
  EXPECT_TRUE(gemmd_.process().Wait(absl::Minutes(1)).has_value());
  EXPECT_TRUE(AllEnd(pids));
}

TEST_F(SuperviseTest, NoneOutlivesTheSupervisor) {
  const std::vector<pid_t> pids = Pids();
  gemmd_.process().Signal(SIGKILL);
  EXPECT_TRUE(AllEnd(pids));
}

TEST_F(SuperviseTest, AReloadReachesAllOrNone) {
  gemmd_.Reload(absl::StrCat(kDrain, " limits { max_ops: 17 }"));
  for (const std::string device : {"cpu:0", "cpu:1"}) {
    EXPECT_TRUE(WaitUntil([&] { return MaxOps(device) == 17; })) << device;
  }
  gemmd_.Reload(absl::StrCat(kDrain, " limits { max_ops: -1 }"));
  EXPECT_TRUE(WaitUntil([&] { return gemmd_.log().find("reload_invalid") != std::string::npos; }));
  gemmd_.Reload(absl::StrCat(kDrain, " share { disabled: true }"));
  EXPECT_TRUE(WaitUntil([&] { return gemmd_.log().find("reload_refused") != std::string::npos; }));
  for (const auto& [device, place] : gemmd_.places()) {
    EXPECT_EQ(MaxOps(device), 17);
    const Samples samples = Scrape(place.metrics);
    EXPECT_EQ(Sum(samples, "gemmd_config_reloads_total", "result=\"ok\""), 1);
    EXPECT_EQ(Sum(samples, "gemmd_config_reloads_total"), 1);
  }
}

TEST_F(SuperviseTest, WhatComesBackHasTheConfigThatIsInForceAndNotTheFiles) {
  gemmd_.Reload(absl::StrCat(kDrain, " limits { max_ops: 17 }"));
  EXPECT_TRUE(WaitUntil([&] { return MaxOps("cpu:0") == 17 && MaxOps("cpu:1") == 17; }));
  for (const std::string file : {" limits { max_ops: -1 }", " share { disabled: true }"}) {
    gemmd_.Reload(absl::StrCat(kDrain, file));  // invalid, then refused
    const pid_t killed = gemmd_.pid("cpu:0");
    const Place place = gemmd_.places()["cpu:0"];
    ASSERT_GT(killed, 0);
    kill(killed, SIGKILL);
    AwaitSuccessor("cpu:0", killed, place);
    EXPECT_EQ(MaxOps("cpu:0"), 17);
  }
  gemmd_.Reload(absl::StrCat(kDrain, " limits { max_ops: 18 }"));
  EXPECT_TRUE(WaitUntil([&] { return MaxOps("cpu:0") == 18 && MaxOps("cpu:1") == 18; }));
}

TEST(SuperviseSignalTest, ASecondOneForces) {
  Supervised gemmd(kDevices, "drain { notice_ms: 60000 limit_ms: 600000 }");
  client::Client client = Must(client::Client::Connect(gemmd.target("cpu:1")));
  gemmd.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return Must(client.GetServerInfo()).draining(); }));
  EXPECT_TRUE(gemmd.process().running());
  gemmd.process().Signal(SIGTERM);
  EXPECT_TRUE(gemmd.process().Wait(absl::Minutes(1)).has_value());
}

TEST(SuperviseSignalTest, ASecondOneForcesEvenThoseThatHaveYetToTakeTheFirst) {
  Supervised gemmd(kDevices, "drain { notice_ms: 60000 limit_ms: 600000 }");
  const pid_t late = gemmd.pid("cpu:0");
  ASSERT_GT(late, 0);
  client::Client client = Must(client::Client::Connect(gemmd.target("cpu:1")));
  kill(late, SIGSTOP);
  gemmd.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return Must(client.GetServerInfo()).draining(); }));
  gemmd.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return gemmd.pid("cpu:1") == 0; }));
  kill(late, SIGCONT);
  EXPECT_TRUE(gemmd.process().Wait(absl::Minutes(1)).has_value());
}

class PerDeviceStartTest : public testing::Test {
 protected:
  Finished Run(const std::string& config, const std::vector<std::string>& more) {
    WriteFile(dir_.File("config"), config);
    std::vector<std::string> argv = {GEMMD_PATH, "--config", dir_.File("config")};
    argv.insert(argv.end(), more.begin(), more.end());
    return RunToEnd(argv);
  }
  std::string ListenAt(const std::string& address) {
    return absl::StrCat("listeners { address: \"", address, "\" }\n", kDevices, kDrain);
  }

  TempDir dir_;
};

TEST_F(PerDeviceStartTest, WhatCannotServeIsRefused) {
  const std::string good = ListenAt("unix:" + dir_.File("{device}.sock"));
  struct Case {
    std::string config;
    std::vector<std::string> arguments;
    std::string told;
  };
  for (const Case& bad : std::vector<Case>{
           {good, {}, "has {device}"},
           {ListenAt("unix:" + dir_.File("s")), {"--supervise"}, "put {device} into it"},
           {ListenAt("unix:" + dir_.File("s")), {"--device", "cpu:0"}, "put {device} into it"},
           {good, {"--device", "cpu:2"}, "give cpu:0 or cpu:1"},
           {good, {"--device", ""}, "--device"},
           {good, {"--supervise", "--device", "cpu:0"}, "do not go together"},
           {good, {"--supervise", "--ready-file", dir_.File("{device}")}, "--ready-file"},
           {good, {"--device", "cpu:0", "--ready-fd", "999"}, "--ready-fd"},
           {good, {"--device", "cpu:0", "--config-fd", "999"}, "--config-fd"},
           {good, {"--supervise", "--config-fd", "0"}, "takes no --config-fd"},
           {good + " metrics { address: \"127.0.0.1:65535\" }", {"--supervise"}, "metrics.address"},
           // What a device's process finds wrong as it starts.
           {good + " devices { name: \"cpu:2\" disabled_kernels: \"no_such\" }",
            {"--supervise"},
            "no_such"},
       }) {
    const Finished finished = Run(bad.config, bad.arguments);
    EXPECT_EQ(finished.status, 2) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr(bad.told));
  }
}

TEST_F(PerDeviceStartTest, OneThatCannotStartEndsAll) {
  Daemon holder;
  const Finished finished = Run(ListenAt(holder.tcp_target()), {"--supervise"});
  EXPECT_EQ(finished.status, 1) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("cannot listen on " + holder.tcp_target()));
}

TEST_F(PerDeviceStartTest, TheConfigOfEachIsShown) {
  const std::string config = ListenAt("127.0.0.1:8470");
  EXPECT_EQ(Run(config, {"--supervise", "--check"}).status, 0);
  const Finished both = Run(config, {"--supervise", "--print-config"});
  EXPECT_THAT(both.out, HasSubstr("127.0.0.1:8470"));
  EXPECT_THAT(both.out, HasSubstr("127.0.0.1:8471"));
  const Finished second = Run(config, {"--device", "cpu:1", "--print-config"});
  EXPECT_THAT(second.out, HasSubstr("127.0.0.1:8471"));
  EXPECT_THAT(second.out, testing::Not(HasSubstr("127.0.0.1:8470")));
}

TEST_F(PerDeviceStartTest, OneDeviceIsServedAlone) {
  WriteFile(dir_.File("config"), ListenAt("unix:" + dir_.File("{device}.sock")));
  Process process = Process::Start({GEMMD_PATH, "--config", dir_.File("config"), "--device",
                                    "cpu:1", "--ready-file", dir_.File("{device}.ready")},
                                   dir_.path());
  EXPECT_TRUE(WaitUntil([&] { return !ReadFile(dir_.File("cpu-1.ready")).empty(); }));
  EXPECT_EQ(ReadFile(dir_.File("cpu-1.ready")), "unix:" + dir_.File("cpu-1.sock") + "\n");
  client::Client client = Must(client::Client::Connect("unix:" + dir_.File("cpu-1.sock")));
  EXPECT_THAT(Must(client.ListDevices()), SizeIs(1));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(absl::Minutes(1)), 0);
}

}  // namespace
}  // namespace gemmd::e2e
