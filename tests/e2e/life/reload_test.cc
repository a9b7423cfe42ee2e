// The config file: refused at start, read again on SIGHUP.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using ::testing::HasSubstr;

class ReloadTest : public E2eTest {
 protected:
  double Reloads(const std::string& result) {
    return daemon_.Metric("gemmd_config_reloads_total", "result=\"" + result + "\"");
  }
  int MaxOps() { return Must(client_.GetServerInfo()).limits().max_ops(); }
};

TEST_F(ReloadTest, AValidFileTakesEffect) {
  daemon_.Reload("limits { max_ops: 17 }");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("ok") == 1; }));
  EXPECT_EQ(MaxOps(), 17);
}

TEST_F(ReloadTest, ConnectionsArePolledFromNowOnAndNoLonger) {
  const auto call = [&] {
    for (int i = 0; i < 20; ++i) Must(client_.GetServerInfo());
  };
  const auto looked = [&] { return daemon_.Metric("gemmd_busy_poll_seconds_total"); };
  call();
  EXPECT_EQ(looked(), 0);
  daemon_.Reload("scheduler { busy_poll_us: 10000 }");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("ok") == 1; }));
  EXPECT_TRUE(WaitUntil([&] {
    call();
    return daemon_.Metric("gemmd_busy_poll_found_total") >= 10;
  }));
  EXPECT_GT(looked(), 0);
  daemon_.Reload("scheduler {}");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("ok") == 2; }));
  // A thread that looks now does so for the last time.
  EXPECT_TRUE(WaitUntil([&] {
    const double seconds = looked();
    call();
    return looked() == seconds;
  }));
}

TEST_F(ReloadTest, AnInvalidFileChangesNothing) {
  daemon_.Reload("limits { max_ops: -17 } log { level: LEVEL_DEBUG }");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("invalid") == 1; }));
  EXPECT_THAT(daemon_.LogWith("limits.max_ops"), HasSubstr("limits.max_ops"));
  EXPECT_EQ(MaxOps(), 4096);
  daemon_.Reload("no_such_field: 1");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("invalid") == 2; }));
  EXPECT_TRUE(session_.CreateBuffer({.size_bytes = 16}).ok());
}

TEST_F(ReloadTest, WhatCannotChangeIsRefused) {
  daemon_.Reload("share { disabled: true } limits { max_ops: 17 }");
  EXPECT_TRUE(WaitUntil([&] { return Reloads("refused") == 1; }));
  EXPECT_THAT(daemon_.LogWith("share"), HasSubstr("share"));
  EXPECT_EQ(MaxOps(), 4096);
}

// OpenBLAS starts a thread before main() can block signals in it.
TEST_F(ReloadTest, WhicheverThreadTheSignalComesTo) {
  const pid_t pid = daemon_.process().pid();
  const uint64_t hup = uint64_t{1} << (SIGHUP - 1);
  int taken = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const std::string status = ReadFile(task.path().string() + "/status");
    const size_t mask = status.find("SigBlk:");
    ASSERT_NE(mask, std::string::npos) << status;
    if (std::stoull(status.substr(mask + 7), nullptr, 16) & hup) continue;
    ASSERT_EQ(tgkill(pid, std::stoi(task.path().filename()), SIGHUP), 0);
    ++taken;
    EXPECT_TRUE(WaitUntil([&] { return Reloads("ok") == taken; })) << status;
  }
  EXPECT_EQ(daemon_.Stop(), 0);
}

// The threads that stay: others come and go, on a busy machine for longer.
double ThreadsOf(const Daemon& daemon) {
  double least = daemon.Metric("process_threads");
  for (int look = 0; look < 20; ++look) {
    absl::SleepFor(absl::Milliseconds(50));
    least = std::min(least, daemon.Metric("process_threads"));
  }
  return least;
}

TEST(ConfigTest, GrpcRunsAsManyThreadsAsTheEnvironmentSays) {
  const auto threads = [](const char* wanted) {
    setenv("GEMMD_GRPC_THREADS", wanted, 1);
    Daemon daemon;
    unsetenv("GEMMD_GRPC_THREADS");
    Must(ConnectTo(daemon).GetServerInfo());
    return ThreadsOf(daemon);
  };
  const double few = threads("2");
  EXPECT_GT(few, 0);
  EXPECT_GE(threads("9"), few + 7);
}

// One that each device's client keeps busy, and two; unless the environment says otherwise.
TEST(ConfigTest, GrpcRunsMoreThreadsForMoreDevicesThanTwo) {
  const auto threads = [](const char* wanted) {
    std::string devices;
    for (int i = 0; i < 4; ++i) {
      devices +=
          "devices { name: \"cpu:" + std::to_string(i) + "\" memory_bytes: 1048576 threads: 1 }\n";
    }
    if (wanted != nullptr) setenv("GEMMD_GRPC_THREADS", wanted, 1);
    Daemon daemon({.devices = devices});
    unsetenv("GEMMD_GRPC_THREADS");
    const pid_t pid = daemon.process().pid();
    Must(ConnectTo(daemon).GetServerInfo());
    EXPECT_EQ(ReadFile("/proc/" + std::to_string(pid) + "/comm"), "gemmd\n");
    const double running = ThreadsOf(daemon);
    EXPECT_EQ(daemon.Stop(), 0);
    return running;
  };
  const double three = threads("3");
  EXPECT_GT(three, 0);
  EXPECT_GE(threads(nullptr), three + 3);
}

int ExecutorThreads(Daemon& daemon) {
  int count = 0;
  const std::string tasks = "/proc/" + std::to_string(daemon.process().pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    const std::string name = ReadFile(task.path().string() + "/comm");
    count += name.rfind("default-executo", 0) == 0 ? 1 : 0;  // so gRPC calls them
  }
  return count;
}

// Each that gRPC starts it keeps, and later calls wake them by turns.
TEST(ConfigTest, LargeTransfersLeaveNoMoreThanTwoOfGrpcsExecutor) {
  Daemon daemon;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      client::Client client = ConnectTo(daemon);
      client::Session session = Must(client.OpenSession({.label = "large"}));
      std::string bytes(16 << 20, 'x');
      client::Buffer buffer =
          Must(session.CreateBuffer({.size_bytes = static_cast<int64_t>(bytes.size())}));
      for (int round = 0; round < 3; ++round) {
        Must(buffer.Upload(bytes, 0, {.route = client::Route::kGrpc}));
        Must(buffer.Download({bytes.data(), bytes.size()}, 0, {.route = client::Route::kGrpc}));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GE(ExecutorThreads(daemon), 1);
  EXPECT_LE(ExecutorThreads(daemon), 2);
}

// Exit status 2, and the path of what is wrong.
TEST(ConfigTest, AnInvalidFileAtStartIsRefused) {
  TempDir dir;
  const auto start = [&](const std::string& text) {
    WriteFile(dir.File("config"), text);
    return RunToEnd({GEMMD_PATH, "--config", dir.File("config")});
  };
  const Finished unknown = start("limits { max_opps: 3 }");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("max_opps"));
  const Finished out_of_range =
      start("listeners { address: \"127.0.0.1:0\" } tenants { name: \"a\" weight: 1000 }");
  EXPECT_EQ(out_of_range.status, 2);
  EXPECT_THAT(out_of_range.err, HasSubstr("tenants[0].weight"));
  EXPECT_THAT(out_of_range.err, HasSubstr("100"));
  const Finished public_address = start("listeners { address: \"0.0.0.0:0\" }");
  EXPECT_EQ(public_address.status, 2);
  EXPECT_THAT(public_address.err, HasSubstr("loopback"));
  const Finished absent = RunToEnd({GEMMD_PATH, "--config", dir.File("absent")});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("absent"));
}

TEST(ConfigTest, TheSocketsFileIsRemovedAtTheEnd) {
  Daemon daemon;
  const std::string socket = daemon.target().substr(5);
  EXPECT_EQ(access(socket.c_str(), F_OK), 0);
  EXPECT_EQ(daemon.Stop(), 0);
  EXPECT_NE(access(socket.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace gemmd::e2e
