#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "bench/floor/echo_server.h"
#include "bench/serving/daemon_process.h"
#include "bench/serving/figure.h"

namespace gemmd::bench {
namespace {

using ::testing::HasSubstr;

TEST(FigureTest, IsOkOnTheRightSideOfWhatIsWanted) {
  Figure figure = {.key = "k", .wanted = 25, .at_most = true, .seen = 25};
  EXPECT_EQ(Verdict(figure), "ok");
  figure.seen = 25.1;
  EXPECT_EQ(Verdict(figure), "short");
  figure.at_most = false;
  EXPECT_EQ(Verdict(figure), "ok");
  figure.seen = 24.9;
  EXPECT_EQ(Verdict(figure), "short");
}

TEST(FigureTest, WhatCouldNotBeMeasuredIsNeitherAndSaysWhy) {
  const Figure figure =
      Missing({.key = "two_devices", .wanted = 1.95}, absl::NotFoundError("no second device"));
  EXPECT_EQ(Verdict(figure), "none");
  EXPECT_FALSE(figure.ok());
  const cli::Json document = FigureJson(figure);
  EXPECT_TRUE(document["seen"].is_null());
  EXPECT_EQ(document["missing"], "no second device");
  EXPECT_THAT(FigureTable({figure}), HasSubstr("no second device"));
}

TEST(DaemonProcessTest, SeesWhatThisProcessUses) {
  const auto before = UseOf(getpid());
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_GT(before->resident_bytes, 1 << 20);
  EXPECT_GE(before->threads, 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(UseOf(getpid())->descriptors, before->descriptors + 2);
  close(ends[0]);
  close(ends[1]);
  // Works until the clock of 10 ms has counted it: a reading that stands still would never end.
  volatile uint64_t work = 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (UseOf(getpid())->cpu_seconds < before->cpu_seconds + 0.05) {
    for (int i = 0; i < 1000000; ++i) work = work + i;
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
  }
}

TEST(DaemonProcessTest, FindsWhoListens) {
  const std::string address = "unix-abstract:gemmd-serving-test-" + std::to_string(getpid());
  EXPECT_EQ(ListenerOf(address).status().code(), absl::StatusCode::kUnavailable);
  const auto server = EchoServer::Start(address);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto pid = ListenerOf(address);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(*pid, getpid());
}

TEST(DaemonProcessTest, AnotherHostOrNoProcessIsAStatus) {
  EXPECT_EQ(ListenerOf("").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ListenerOf("127.0.0.1:8470").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ListenerOf("unix:/" + std::string(200, 'x')).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(UseOf(-1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gemmd::bench
