// Readers that stop reading: of the log, which is a pipe as under a supervisor or `| tee`, and of a
// trace. Nothing waits for them, and what they miss is counted.
//
// GEMMD_STALL_SECONDS is how long they stop for, 2 unless given. From 30 on, others' latencies are
// compared with those before the stall: over seconds they say little.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/trace_reader.h"

namespace gemmd::hostile {
namespace {

using namespace gemmd::e2e;  // NOLINT: the tests' own helpers

absl::Duration StallTime() {
  const char* seconds = std::getenv("GEMMD_STALL_SECONDS");
  return absl::Seconds(seconds == nullptr ? 2 : std::atoi(seconds));
}

// A FIFO with a reader that can stop.
class LogPipe {
 public:
  LogPipe() : path_(dir_.File("log")) {
    if (mkfifo(path_.c_str(), 0600) != 0) std::abort();
    fd_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ < 0) std::abort();
    fcntl(fd_, F_SETPIPE_SZ, 4096);
    Resume();
  }
  ~LogPipe() {
    Stop();
    if (fd_ >= 0) close(fd_);
  }
  const std::string& path() const { return path_; }

  void Resume() {
    stop_ = false;
    thread_ = std::thread([this] { Read(); });
  }
  // Reads no more from here on.
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void Close() {
    Stop();
    close(std::exchange(fd_, -1));
  }
  // Whole lines so far. While stopped, or once its writer has gone.
  std::vector<std::string> Lines() const { return absl::StrSplit(text_, '\n', absl::SkipEmpty()); }

 private:
  void Read() {
    char bytes[65536];
    while (!stop_) {
      pollfd ready = {fd_, POLLIN, 0};
      if (poll(&ready, 1, 10) <= 0) continue;
      const ssize_t got = read(fd_, bytes, sizeof(bytes));
      if (got > 0) text_.append(bytes, static_cast<size_t>(got));
      if (got == 0) absl::SleepFor(absl::Milliseconds(1));  // no writer yet, or no more
    }
  }

  TempDir dir_;
  const std::string path_;
  int fd_ = -1;
  std::atomic<bool> stop_{false};
  std::string text_;
  std::thread thread_;
};

// "count=17" of a line; 0 without.
int64_t NumberAfter(const std::string& line, const std::string& key) {
  int64_t number = 0;
  const size_t at = line.find(key);
  if (at == line.npos) return 0;
  const std::string rest = line.substr(at + key.size());
  (void)absl::SimpleAtoi(rest.substr(0, rest.find_first_not_of("0123456789")), &number);
  return number;
}

// A tiny program again and again, by a client that has nothing to do with who stalls: what it
// waits for each. A call that hangs fails the test by its deadline.
class Bystander {
 public:
  explicit Bystander(const std::string& target)
      : client_(Must(client::Client::Connect(target))),
        session_(Must(client_.OpenSession())),
        buffer_(MakeBuffer(session_, {8, 8})) {}

  absl::Duration P99(
      absl::Duration time, const std::function<void()>& between = [] {}) {
    std::vector<absl::Duration> waits;
    for (const absl::Time end = absl::Now() + time; absl::Now() < end || waits.size() < 100;) {
      client::OpList ops;
      ops.Add(client::Fill{buffer_.tensor(), 1});
      const absl::Time begin = absl::Now();
      const auto result = session_.Execute(ops, {.call = {.timeout = absl::Minutes(1)}});
      waits.push_back(absl::Now() - begin);
      EXPECT_TRUE(result.ok()) << result.status();
      between();
    }
    std::sort(waits.begin(), waits.end());
    return waits[waits.size() * 99 / 100];
  }

 private:
  client::Client client_;
  client::Session session_;
  client::Buffer buffer_;
};

void Compare(const char* what, absl::Duration before, absl::Duration during) {
  std::printf("%s: p99 of another client %s before, %s while the reader stalls for %s\n", what,
              absl::FormatDuration(before).c_str(), absl::FormatDuration(during).c_str(),
              absl::FormatDuration(StallTime()).c_str());
  if (StallTime() >= absl::Seconds(30)) {
    EXPECT_LE(during, 1.5 * before);
  }
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& target) {
  return grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
}

// A call that fails, and so is logged: in two lines, an audit's and its own.
void Fail(const std::shared_ptr<grpc::Channel>& channel) {
  EXPECT_EQ(CallByName(channel, "/gemmd.v1.AdminService/EndSession", "").status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

void ExpectHealthy(const std::shared_ptr<grpc::Channel>& channel) {
  EXPECT_TRUE(CallByName(channel, "/grpc.health.v1.Health/Check", "").status.ok());
}

// How many calls that took.
int FailUntilLinesAreDropped(const Daemon& daemon, const std::shared_ptr<grpc::Channel>& channel) {
  for (int i = 1; i < 20000 && !testing::Test::HasFailure(); ++i) {
    Fail(channel);
    if (i % 100 == 0 && daemon.Metric("gemmd_log_lines_dropped_total") > 0) return i;
  }
  ADD_FAILURE() << "no line was dropped";
  return 0;
}

constexpr char kAdmin[] = "listeners { address: \"127.0.0.1:0\" role: ROLE_ADMIN }\n";

TEST(StalledLogTest, StopsNoCallAndItsReaderIsToldWhatItMissed) {
  LogPipe log;
  Daemon daemon({.config = kAdmin, .log_to = log.path()});
  const auto admin = ChannelTo(daemon.listener(0));
  Bystander other(daemon.target());
  int64_t calls = 0;
  const auto fail = [&] {
    Fail(admin);
    ++calls;
  };
  const absl::Duration before = other.P99(StallTime(), fail);
  log.Stop();
  const absl::Duration during = other.P99(StallTime(), fail);
  calls += FailUntilLinesAreDropped(daemon, admin);
  ExpectHealthy(admin);
  log.Resume();
  EXPECT_EQ(daemon.Stop(), 0);
  log.Stop();
  Compare("unread log", before, during);

  // Of every call the audit's line is there or counted, whole and in order. The line of a failed
  // call beside it has a budget of its own.
  int64_t lines = 0, dropped = 0, last = 0;
  bool drained = false;
  for (const std::string& line : log.Lines()) {
    EXPECT_TRUE(absl::StartsWith(line, "20")) << line;
    drained |= absl::StrContains(line, " INFO drained ");
    if (absl::StrContains(line, " WARNING log_dropped ")) dropped += NumberAfter(line, "count=");
    if (!absl::StrContains(line, " method=\"EndSession\" ")) continue;
    const size_t dash = line.find('-', line.find(" request=\""));
    const int64_t request = NumberAfter(line.substr(dash), "-");
    EXPECT_GE(request, last) << line;
    last = request;
    ++lines;
  }
  EXPECT_TRUE(drained);
  EXPECT_GT(dropped, 0);
  EXPECT_GE(lines + dropped, calls);  // dropped ones may be others, too
}

TEST(StalledLogTest, DoesNotKeepTheDaemonFromItsEnd) {
  LogPipe log;
  Daemon daemon({.config = kAdmin, .log_to = log.path()});
  const auto admin = ChannelTo(daemon.listener(0));
  log.Stop();
  FailUntilLinesAreDropped(daemon, admin);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(StalledLogTest, OfAClosedPipeOrAFullDiskIsLostAndNothingElse) {
  LogPipe log;
  Daemon piped({.config = kAdmin, .log_to = log.path()});
  log.Close();
  Daemon full({.config = kAdmin, .log_to = "/dev/full"});
  for (Daemon* daemon : {&piped, &full}) {
    const auto admin = ChannelTo(daemon->listener(0));
    for (int i = 0; i < 100; ++i) Fail(admin);
    ExpectHealthy(admin);
    EXPECT_TRUE(WaitUntil([&] { return daemon->Metric("gemmd_log_lines_dropped_total") >= 100; }));
    EXPECT_EQ(daemon->Stop(), 0);
  }
}

// The supervisor and its processes share one.
TEST(StalledLogTest, StopsNoneOfTheProcessesOfDevices) {
  LogPipe log;
  TempDir dir;
  WriteFile(dir.File("config"),
            absl::StrCat("devices { name: \"cpu:0\" threads: 1 memory_bytes: 1048576 }\n",
                         "devices { name: \"cpu:1\" threads: 1 memory_bytes: 1048576 }\n",
                         "listeners { address: \"unix:", dir.File("{device}.sock"),
                         "\" role: ROLE_ADMIN }\n"));
  Process gemmd = Process::Start(
      {"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", log.path(), FindProgram(GEMMD_PATH), "--config",
       dir.File("config"), "--supervise", "--ready-file", dir.File("ready")},
      dir.path());
  ASSERT_TRUE(WaitUntil([&] { return !ReadFile(dir.File("ready")).empty() || !gemmd.running(); },
                        absl::Minutes(1)));
  log.Stop();
  for (const char* device : {"cpu-0", "cpu-1"}) {
    const auto admin = ChannelTo(absl::StrCat("unix:", dir.File(device), ".sock"));
    for (int i = 0; i < 500; ++i) Fail(admin);
    ExpectHealthy(admin);
  }
  gemmd.Signal(SIGHUP);  // the supervisor's turn to write
  gemmd.Signal(SIGTERM);
  EXPECT_EQ(gemmd.Wait(absl::Minutes(1)), 0);
}

TEST(StalledTraceTest, StopsNoCallAndNotTheDaemonsEnd) {
  Daemon daemon({.config = kAdmin});
  Bystander other(daemon.target());
  const absl::Duration before = other.P99(StallTime());
  grpc::ChannelArguments small_window;
  small_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  TraceReader trace(grpc::CreateCustomChannel(daemon.listener(0),
                                              grpc::InsecureChannelCredentials(), small_window),
                    absl::Minutes(5), /*reads=*/false);
  ASSERT_TRUE(WaitUntil([&] { return daemon.Metric("gemmd_streams", "method=\"Trace\"") == 1; }));
  const absl::Duration during = other.P99(StallTime());
  Compare("unread trace", before, during);
  ExpectHealthy(ChannelTo(daemon.listener(0)));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace gemmd::hostile
