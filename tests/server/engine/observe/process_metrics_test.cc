#include "server/engine/observe/process_metrics.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

using prometheus::MetricType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

std::map<std::string, double> Read(const std::string& proc = "/proc") {
  Families read;
  ReadProcess(proc, read);
  std::vector<prometheus::MetricFamily> families;
  std::move(read).MoveTo(families);
  std::map<std::string, double> values;
  for (const auto& family : families) {
    const auto& metric = family.metric[0];
    values[family.name] =
        family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  return values;
}

// proc(5): pid (comm) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt
// utime stime cutime cstime priority nice threads itrealvalue starttime vsize rss ...
constexpr char kStat[] =
    "4711 (gemmd) S 1 4711 4711 0 -1 4194560 1000 0 7 0 250 150 0 0 20 0 12 0 3000 104857600 2560 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 16640 0 0 0 17 1 0 0 0 0 0\n";

TEST(ParseStatTest, TakesTheFieldsOfTheManual) {
  const auto stat = ParseStat(kStat, 100, 4096);
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_DOUBLE_EQ(stat->cpu_seconds, 4.0);
  EXPECT_DOUBLE_EQ(stat->resident_bytes, 2560 * 4096.0);
  EXPECT_EQ(stat->threads, 12);
  EXPECT_DOUBLE_EQ(stat->start_seconds, 30.0);
}

TEST(ParseStatTest, ACommandsNameMayHoldAnything) {
  std::string text = kStat;
  text.replace(text.find("(gemmd)"), 7, "(a) R 1 (b))");
  const auto stat = ParseStat(text, 100, 4096);
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->threads, 12);
}

TEST(ParseStatTest, WhatIsCutShortIsRefused) {
  for (const char* text :
       {"", "4711", "4711 (gemmd)", "4711 (gemmd) S 1 4711",
        "4711 (gemmd) S 1 4711 4711 0 -1 1 1 0 7 0 two 150 0 0 20 0 12 0 3 1 2"}) {
    EXPECT_EQ(ParseStat(text, 100, 4096).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ProcessMetricsTest, TellsOfThisProcess) {
  const auto values = Read();
  EXPECT_THAT(values, ElementsAre(Key("process_cpu_seconds_total"), Key("process_max_fds"),
                                  Key("process_open_fds"), Key("process_resident_memory_bytes"),
                                  Key("process_start_time_seconds"), Key("process_threads")));
  EXPECT_GT(values.at("process_resident_memory_bytes"), 1 << 20);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(values.at("process_start_time_seconds"), now + 2);  // boot time is in whole seconds
  EXPECT_GT(values.at("process_start_time_seconds"), now - 86400);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(values.at("process_max_fds"), static_cast<double>(limit.rlim_cur));
}

TEST(ProcessMetricsTest, CountsDescriptors) {
  const double before = Read().at("process_open_fds");
  std::vector<int> opened;
  for (int i = 0; i < 10; ++i) opened.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Read().at("process_open_fds"), before + 10);
  for (int fd : opened) close(fd);
  EXPECT_EQ(Read().at("process_open_fds"), before);
}

TEST(ProcessMetricsTest, CountsThreadsAndTheirTime) {
  const auto before = Read();
  absl::Notification end;
  std::thread idle([&] { end.WaitForNotification(); });
  // A sanitizer may start one of its own beside the first.
  EXPECT_GE(Read().at("process_threads"), before.at("process_threads") + 1);
  end.Notify();
  idle.join();
  // Ticks are 10 ms of CPU; this ends whatever the machine's speed.
  double seconds = before.at("process_cpu_seconds_total");
  while (seconds == before.at("process_cpu_seconds_total")) {
    seconds = Read().at("process_cpu_seconds_total");
  }
  EXPECT_GT(seconds, before.at("process_cpu_seconds_total"));
}

TEST(ProcessMetricsTest, WhatCannotBeReadIsLeftOut) {
  EXPECT_THAT(Read("/nowhere"), ElementsAre(Key("process_max_fds")));
}

}  // namespace
}  // namespace gemmd::server
