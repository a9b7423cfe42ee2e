// Descriptors that run out: by TCP, Unix and share-socket peers in turn, under small limits.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/health_watch.h"
#include "tests/hostile/http2.h"
#include "tests/server/engine/share_client.h"

namespace gemmd::hostile {
namespace {

using e2e::CallByName;
using e2e::Daemon;
using e2e::HealthWatch;
using e2e::WaitUntil;

constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
constexpr char kNotServing = 2;
constexpr absl::Duration kSoon = absl::Minutes(1);

// Health, asked on a connection of its own: 0 when there is no answer in time.
int HealthAt(const std::string& target, absl::Duration patience = kSoon) {
  RawConnection peer({.target = target});
  if (!peer.Handshake(patience)) return 0;
  peer.Send(Frame(FrameType::kHeaders, kEndHeaders, 1, RequestHeaders(kHealth)) +
            Frame(FrameType::kData, kEndStream, 1, Message("")));
  const absl::Time end = absl::Now() + patience;
  while (peer.data(1).size() < 7 && absl::Now() < end && peer.Read(absl::Milliseconds(20))) {
  }
  return peer.data(1).size() < 7 ? 0 : peer.data(1)[6];
}

int HealthOn(const std::shared_ptr<grpc::Channel>& channel) {
  const e2e::Answered answered = CallByName(channel, kHealth, "");
  return answered.responses.size() == 1 && answered.responses[0].size() == 2
             ? answered.responses[0][1]
             : 0;
}

bool Shares(const std::string& address) {
  server::ShareClient client(address);
  return client.connected() && client.Send("?") && client.Receive().refused();
}

int LinesWith(const std::string& log, std::string_view event) {
  int count = 0;
  for (size_t at = log.find(event); at != std::string::npos; at = log.find(event, at + 1)) ++count;
  return count;
}

// A daemon with a small limit of descriptors, and three listeners and a share socket.
class DescriptorsTest : public testing::TestWithParam<int> {
 protected:
  static e2e::DaemonOptions Options(const std::string& more) {
    return {.config = absl::StrCat("listeners { address: \"127.0.0.1:0\" health_only: true }\n",
                                   "share { socket_path: \"@DIR@/share.sock\" }\n", more),
            .launcher = {"/usr/bin/prlimit", absl::StrCat("--nofile=", GetParam())}};
  }
  static std::string ShareAddress(const Daemon& daemon) {
    return absl::StrCat("unix:", daemon.dir(), "/share.sock");
  }
  static std::vector<std::string> Listeners(const Daemon& daemon) {
    return {daemon.tcp_target(), daemon.target(), daemon.listener(0)};
  }
  static std::shared_ptr<grpc::Channel> Connected(const std::string& target) {
    auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    EXPECT_EQ(HealthOn(channel), 1);
    return channel;
  }
  static std::vector<std::unique_ptr<RawConnection>> Crowd(const std::string& target,
                                                           const std::string& source, int count) {
    std::vector<std::unique_ptr<RawConnection>> crowd;
    for (int i = 0; i < count; ++i) {
      crowd.push_back(
          std::make_unique<RawConnection>(PeerOptions{.target = target, .source = source}));
    }
    return crowd;
  }
  // How long until every listener and the share socket serve new peers, which they must.
  static absl::Duration TimeToServe(const Daemon& daemon) {
    const absl::Time begin = absl::Now();
    for (const std::string& listener : Listeners(daemon)) {
      EXPECT_TRUE(WaitUntil([&] { return HealthAt(listener, absl::Seconds(5)) == 1; }, kSoon))
          << listener;
    }
    EXPECT_TRUE(WaitUntil([&] { return Shares(ShareAddress(daemon)); }, kSoon));
    return absl::Now() - begin;
  }
};

INSTANTIATE_TEST_SUITE_P(Limits, DescriptorsTest, testing::Values(64, 96, 256, 1024),
                         [](const auto& info) { return absl::StrCat("Nofile", info.param); });

// The limits of connections are above that of descriptors.
TEST_P(DescriptorsTest, ListenersServeAgainOnceDescriptorsAreFree) {
  Daemon daemon(Options("connections { max: 50000 max_per_peer: 50000 }"));
  const auto probe = Connected(daemon.listener(0));
  const auto client = Connected(daemon.target());
  for (const std::string& target : {daemon.tcp_target(), daemon.target()}) {
    SCOPED_TRACE(target);
    {
      HealthWatch watch(client);
      EXPECT_EQ(watch.Next(kSoon), 1);
      const auto crowd = Crowd(target, "", GetParam() + 20);
      // Those who were there before are answered, with the truth.
      EXPECT_EQ(watch.Next(kSoon), kNotServing);
      EXPECT_TRUE(WaitUntil([&] { return HealthOn(probe) == kNotServing; }, kSoon));
      // One who comes now is not left to wait.
      RawConnection late({.target = target});
      EXPECT_TRUE(!late.open() || late.AwaitEnd(kSoon));
    }
    const absl::Duration took = TimeToServe(daemon);
    RecordProperty(
        absl::StrCat("serves_again_ms_after_", target.substr(0, 4) == "unix" ? "unix" : "tcp"),
        static_cast<int>(absl::ToInt64Milliseconds(took)));
    EXPECT_TRUE(WaitUntil([&] { return HealthOn(probe) == 1; }, kSoon));
  }
  EXPECT_GT(daemon.Metric("gemmd_connections_refused_total", "reason=\"descriptors\""), 0);
  // A line for a spell, not for each connection or each try.
  EXPECT_LE(LinesWith(daemon.log(), "accept_failed"), 6);
}

TEST_P(DescriptorsTest, ShareSocketPeersLeaveDescriptorsToTheListeners) {
  Daemon daemon(Options(""));
  const std::string share = ShareAddress(daemon);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<std::unique_ptr<server::ShareClient>> stalled;
  for (int i = 0; i < GetParam(); ++i) {
    server::ShareClient client(share);
    if (client.connected()) client.Send("P", {null});
  }
  for (int i = 0; i < 64; ++i) stalled.push_back(std::make_unique<server::ShareClient>(share));
  for (const std::string& listener : Listeners(daemon)) EXPECT_EQ(HealthAt(listener), 1);
  stalled.clear();
  close(null);
  TimeToServe(daemon);
}

// With the limits that the daemon chooses.
TEST_P(DescriptorsTest, OnePeerLeavesConnectionsToOthers) {
  Daemon daemon(Options(""));
  const auto crowd = Crowd(daemon.tcp_target(), "127.0.0.2", GetParam() + 20);
  EXPECT_TRUE(WaitUntil(
      [&] { return daemon.Metric("gemmd_connections_refused_total", "reason=\"peer\"") > 0; },
      kSoon));
  for (const std::string& listener : Listeners(daemon)) EXPECT_EQ(HealthAt(listener), 1);
  EXPECT_LE(daemon.Metric("gemmd_connections"), daemon.Metric("gemmd_connections_limit"));
  EXPECT_EQ(daemon.Metric("gemmd_connections_refused_total", "reason=\"descriptors\""), 0);
  EXPECT_LE(LinesWith(daemon.log(), "connection_refused"), 3);
}

// Their number is what the limits go by: none may be lost.
TEST(ConnectionCountTest, ComesBackToNoneOverMany) {
  Daemon daemon;
  for (int i = 0; i < 50; ++i) {
    for (const std::string& target : {daemon.tcp_target(), daemon.target()}) {
      RawConnection peer({.target = target});
      if (i % 2 == 0) {
        EXPECT_TRUE(peer.Handshake());
      }
    }
  }
  EXPECT_TRUE(WaitUntil([&] { return daemon.Metric("gemmd_connections") == 0; }, kSoon));
}

}  // namespace
}  // namespace gemmd::hostile
