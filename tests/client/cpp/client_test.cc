#include "client/cpp/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

using ::testing::HasSubstr;

TEST(ClientTest, ConnectsOverUnixSocketAndLoopback) {
  for (bool loopback : {false, true}) {
    FakeDaemon daemon({.loopback = loopback});
    Client client = ConnectTo(daemon);
    EXPECT_EQ(client.target(), daemon.target());
    EXPECT_EQ(client.GetServerInfo()->version(), "0.1.0");
  }
}

TEST(ClientTest, ConnectFailsWhereNobodyListens) {
  const absl::StatusOr<Client> client =
      Client::Connect("unix-abstract:gemmd-nobody", {.connect_timeout = absl::Milliseconds(100)});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("gemmd-nobody"));
}

TEST(ClientTest, RefusesOptionsOutOfRange) {
  FakeDaemon daemon;
  EXPECT_FALSE(Client::Connect("").ok());
  EXPECT_FALSE(Client::Connect(daemon.target(), {.connections = 0}).ok());
  EXPECT_FALSE(Client::Connect(daemon.target(), {.max_send_bytes = 1}).ok());
  EXPECT_FALSE(Client::Connect(daemon.target(), {.retry = {.max_attempts = 0}}).ok());
}

TEST(ClientTest, WhatIsNoTargetIsRefusedAtOnceWithWhatIsOne) {
  const auto told = [](const std::string& target) {
    const auto client = Client::Connect(target, {.connect_timeout = absl::Milliseconds(10)});
    EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument) << target;
    return std::string(client.status().message());
  };
  EXPECT_THAT(told("http://127.0.0.1:8470"), HasSubstr("is an URL; write HOST:PORT, unix:/PATH"));
  EXPECT_THAT(told("/run/gemmd.sock"), HasSubstr("is a path; write unix:/run/gemmd.sock"));
  for (const char* target :
       {"127.0.0.1", "127.0.0.1:99999", "localhost:x", "::1", "::1:8470", ":1"}) {
    EXPECT_THAT(told(target), HasSubstr("has no port of 1 to 65535")) << target;
  }
  EXPECT_THAT(told("unix:///" + std::string(107, 'a')),
              HasSubstr("has a path of 108 bytes; that of a socket has 107 at most"));
  for (const char* target : {"127.0.0.1:1", "[::1]:1", "dns:///127.0.0.1:1", "ipv4:127.0.0.1:1"}) {
    const auto client = Client::Connect(target, {.connect_timeout = absl::Milliseconds(10)});
    EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << target;
  }
}

TEST(ClientTest, IntrospectionReturnsTheServersMessages) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  EXPECT_EQ(client.ListDevices()->at(0).name(), "cpu:0");
  EXPECT_EQ(client.ListKernels("cpu:0")->at(0).name(), "cpu_f32");
  EXPECT_EQ(client.Explain(v1::MatmulProblem(), "cpu:0")->candidates_size(), 1);
}

TEST(ClientTest, ListsCollectEveryPage) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  const auto sessions = client.ListSessions();
  ASSERT_EQ(sessions->size(), 6);
  EXPECT_EQ(sessions->back().name(), "s-5");
  EXPECT_EQ(daemon.Calls("ListSessions"), 3);
}

TEST(ClientTest, HealthTellsServerDeviceAndUnknownServiceApart) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  EXPECT_EQ(*client.CheckHealth(), Health::kServing);
  EXPECT_EQ(*client.CheckHealth("cpu:0"), Health::kNotServing);
  EXPECT_EQ(*client.CheckHealth("cpu:7"), Health::kServiceUnknown);
}

TEST(ClientTest, ReasonRequestIdAndTextOfTheServerReachTheCaller) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  daemon.Fail("ListDevices", Signed(absl::PermissionDeniedError("n=70 is wrong"), "INVALID"));
  const absl::Status status = client.ListDevices().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "n=70 is wrong");
  EXPECT_EQ(ReasonOf(status), "INVALID");
  EXPECT_EQ(RequestIdOf(status), "r-1");
}

TEST(ClientTest, ReadsAreTriedAgainAfterABreak) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  daemon.Fail("GetServerInfo", Torn(), /*times=*/3);
  EXPECT_TRUE(client.GetServerInfo().ok());
  EXPECT_EQ(daemon.Calls("GetServerInfo"), 4);
}

TEST(ClientTest, TriesEndAtTheLimit) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon, {.retry = {.max_attempts = 3}});
  daemon.Fail("GetServerInfo", Torn(), /*times=*/10);
  EXPECT_EQ(client.GetServerInfo().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon.Calls("GetServerInfo"), 3);
}

TEST(ClientTest, RefusalOfADrainingServerIsNotTriedAgain) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  daemon.Fail("GetServerInfo", Signed(absl::UnavailableError("draining"), "DRAINING"));
  EXPECT_EQ(ReasonOf(client.GetServerInfo().status()), "DRAINING");
  EXPECT_EQ(daemon.Calls("GetServerInfo"), 1);
}

TEST(ClientTest, OpenSessionIsNotTriedAgainAfterABreak) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  daemon.Fail("OpenSession", Torn(), /*times=*/1, /*after=*/true);
  EXPECT_EQ(client.OpenSession().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon.Calls("OpenSession"), 1);
}

TEST(ClientTest, DeadlineEndsAStalledCallAndItsRetries) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  daemon.Stall("ListDevices");
  const absl::Time start = absl::Now();
  const absl::Status status = client.ListDevices({.timeout = absl::Milliseconds(60)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(daemon.Calls("ListDevices"), 1);
}

TEST(ClientTest, DefaultTimeoutServesCallsThatGiveNone) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon, {.default_timeout = absl::Milliseconds(60)});
  daemon.Stall("ListDevices");
  EXPECT_EQ(client.ListDevices().status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientTest, UnsentCallsAreTriedUntilTheTriesEnd) {
  std::string target;
  {
    FakeDaemon daemon({.loopback = true});
    target = daemon.target();
  }
  absl::StatusOr<Client> client =
      Client::Connect(target, {.connect_timeout = absl::ZeroDuration(),
                               .retry = {.initial_backoff = absl::Milliseconds(1)}});
  const absl::Status status = client->OpenSession().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("failed to connect"));
}

TEST(ClientTest, TraceContextIsPassedOn) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  ASSERT_TRUE(client.ListDevices({.traceparent = trace}).ok());
  EXPECT_EQ(daemon.LastMetadata("traceparent"), trace);
}

TEST(ClientTest, SeveralConnectionsShareTheSessions) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon, {.connections = 3});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(client.OpenSession()->KeepAlive().ok());
}

}  // namespace
}  // namespace gemmd::client
