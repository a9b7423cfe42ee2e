// Several daemons as one: where calls go, and when they are made again.

#include "client/cpp/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/lookup.h"
#include "tests/client/cpp/eventually.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What is prepared: which time it was.
using Count = int;

absl::Status Refused(const char* reason) {
  return Signed(absl::UnavailableError("go away"), reason);
}

class ReplicasTest : public testing::Test {
 protected:
  ReplicaOptions Options() {
    ReplicaOptions options;
    options.client.retry.max_attempts = 1;
    options.client.connect_timeout = absl::Seconds(30);
    options.patience = absl::Minutes(1);
    return options;
  }
  Replicas<Count> Open(const std::vector<std::string>& targets, const ReplicaOptions& options) {
    auto replicas = Replicas<Count>::Open(
        targets, [this](Session&) -> absl::StatusOr<Count> { return ++prepared_; }, options);
    if (!replicas.ok()) std::abort();
    EXPECT_TRUE(Eventually([&] { return replicas->serving() == targets.size(); }));
    return *std::move(replicas);
  }
  // A call that needs its session, and nothing else.
  static absl::Status Work(Session& session, Count&) { return session.KeepAlive().status(); }

  std::atomic<int> prepared_ = 0;
};

TEST_F(ReplicasTest, CallsAreSharedAmongThoseThatServe) {
  FakeDaemon one, two;
  auto replicas = Open({one.target(), two.target()}, Options());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(replicas.Run(Work), absl::OkStatus());
  EXPECT_EQ(one.Calls("KeepAlive"), 5);
  EXPECT_EQ(two.Calls("KeepAlive"), 5);
  EXPECT_EQ(prepared_, 2);
}

TEST_F(ReplicasTest, ACallGoesElsewhereWhenItsServerSaysSoIsLostOrHasRestarted) {
  const absl::Status gone = Signed(absl::NotFoundError("no session"), "SESSION_GONE");
  for (const absl::Status& status : {Refused("DRAINING"), Refused("DEVICE_FENCED"), Torn(), gone}) {
    FakeDaemon one, two;
    auto replicas = Open({one.target(), two.target()}, Options());
    one.Fail("KeepAlive", status);
    two.Fail("KeepAlive", status);
    // Both fail once: the call comes back to one that was prepared anew.
    EXPECT_EQ(replicas.Run(Work), absl::OkStatus()) << status;
    EXPECT_EQ(one.Calls("KeepAlive") + two.Calls("KeepAlive"), 3) << status;
    EXPECT_TRUE(Eventually([&] { return replicas.serving() == 2; }));
  }
}

TEST_F(ReplicasTest, WhatWouldFailAnywhereIsReturned) {
  FakeDaemon one, two;
  auto replicas = Open({one.target(), two.target()}, Options());
  for (const absl::Status& status :
       {absl::InvalidArgumentError("n"), absl::ResourceExhaustedError("n"),
        absl::DeadlineExceededError("n"), absl::NotFoundError("n"), absl::InternalError("n")}) {
    int calls = 0;
    EXPECT_EQ(replicas.Run([&](Session&, Count&) {
      ++calls;
      return status;
    }),
              status);
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(replicas.serving(), 2);
}

TEST_F(ReplicasTest, ACallThatServersDieUnderDoesNotGoRoundThemAll) {
  FakeDaemon one, two;
  auto replicas = Open({one.target(), two.target()}, Options());
  one.Fail("KeepAlive", Torn(), 10);
  two.Fail("KeepAlive", Torn(), 10);
  EXPECT_EQ(replicas.Run(Work).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(one.Calls("KeepAlive") + two.Calls("KeepAlive"), 3);
}

TEST_F(ReplicasTest, ACallWaitsForTheOnlyReplicaToComeBack) {
  const std::string name = absl::StrCat("gemmd-replica-", getpid());
  std::optional<FakeDaemon> daemon(std::in_place, FakeDaemon::Options{.name = name});
  auto replicas = Open({daemon->target()}, Options());
  daemon.reset();
  std::thread caller([&] { EXPECT_EQ(replicas.Run(Work), absl::OkStatus()); });
  EXPECT_TRUE(Eventually([&] { return replicas.serving() == 0; }));
  daemon.emplace(FakeDaemon::Options{.name = name});
  caller.join();
  EXPECT_EQ(prepared_, 2);
}

TEST_F(ReplicasTest, PatienceEndsAndNamesTheTrouble) {
  std::optional<FakeDaemon> daemon(std::in_place);
  ReplicaOptions options = Options();
  options.patience = absl::Milliseconds(500);
  auto replicas = Open({daemon->target()}, options);
  daemon.reset();
  const absl::Status status = replicas.Run(Work);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no replica takes work"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("unix-abstract:"));
}

TEST_F(ReplicasTest, ADeadlineEndsTheWaitToo) {
  std::optional<FakeDaemon> daemon(std::in_place);
  auto replicas = Open({daemon->target()}, Options());
  daemon.reset();
  EXPECT_EQ(replicas.Run(Work, absl::Now() + absl::Milliseconds(50)).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ReplicasTest, OneThatDrainsIsLeftForAnother) {
  FakeDaemon one, two;
  auto replicas = Open({one.target(), two.target()}, Options());
  ASSERT_TRUE(Eventually([&] { return one.HeldSessions() == 1 && two.HeldSessions() == 1; }));
  one.ServeHealth(false);
  one.AnnounceDrain(absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(Eventually([&] { return replicas.serving() == 1; }));
  const int before = one.Calls("KeepAlive");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(replicas.Run(Work), absl::OkStatus());
  EXPECT_EQ(one.Calls("KeepAlive"), before);
  EXPECT_EQ(prepared_, 2);

  // Alone and still taking work, it is better than none.
  two.Fail("KeepAlive", Refused("DRAINING"));
  two.ServeHealth(false);
  EXPECT_EQ(replicas.Run(Work), absl::OkStatus());
  EXPECT_EQ(one.Calls("KeepAlive"), before + 1);

  one.ServeHealth(true);
  EXPECT_TRUE(Eventually([&] { return prepared_ == 3 && replicas.serving() == 1; }));
}

TEST_F(ReplicasTest, OpenReturnsWhatWaitingWouldNotMend) {
  FakeDaemon daemon;
  const auto open = [&](const std::vector<std::string>& targets, const ReplicaOptions& options,
                        const absl::Status& prepare) {
    return Replicas<Count>::Open(
               targets,
               [&](Session&) -> absl::StatusOr<Count> {
                 if (prepare.ok()) return 1;
                 return prepare;
               },
               options)
        .status();
  };
  const absl::Status shape = absl::InvalidArgumentError("shape");
  const absl::Status unprepared = open({daemon.target()}, Options(), shape);
  EXPECT_EQ(unprepared.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unprepared.message()), HasSubstr("prepare: shape"));
  EXPECT_EQ(open({}, Options(), {}).code(), absl::StatusCode::kInvalidArgument);
  ReplicaOptions options = Options();
  options.client.token_file = "/no/such/file";
  EXPECT_EQ(open({daemon.target()}, options, {}).code(), absl::StatusCode::kNotFound);
  options = Options();
  options.patience = absl::Milliseconds(100);
  EXPECT_EQ(open({"unix-abstract:gemmd-nobody"}, options, {}).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ReplicasTest, ReplicasComeAndGoWithTheNamesAddresses) {
  FakeDaemon one, two;
  std::atomic<int> look = 0;
  ReplicaOptions options = Options();
  options.lookup_period = absl::Milliseconds(1);
  options.lookup = [&](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    switch (look.load()) {
      case 0:
        return std::vector<std::string>{one.target()};
      case 1:
        return std::vector<std::string>{one.target(), two.target()};
      case 2:
        return absl::UnavailableError("no DNS");
      default:
        return std::vector<std::string>{two.target()};
    }
  };
  auto replicas = Open({"gemm.example:8470"}, options);
  EXPECT_EQ(replicas.serving(), 1);
  look = 1;
  EXPECT_TRUE(Eventually([&] { return replicas.serving() == 2; }));
  look = 2;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(replicas.Run(Work), absl::OkStatus());
  EXPECT_EQ(replicas.serving(), 2);
  look = 3;
  EXPECT_TRUE(Eventually([&] { return replicas.serving() == 1; }));
  EXPECT_TRUE(Eventually([&] { return one.OpenSessions() == 0; }));
  const int before = one.Calls("KeepAlive");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(replicas.Run(Work), absl::OkStatus());
  EXPECT_EQ(one.Calls("KeepAlive"), before);
}

TEST_F(ReplicasTest, SessionsAreClosedWithThem) {
  FakeDaemon one, two;
  { auto replicas = Open({one.target(), two.target()}, Options()); }
  EXPECT_EQ(one.OpenSessions(), 0);
  EXPECT_EQ(two.OpenSessions(), 0);
}

TEST_F(ReplicasTest, ManyCallersWhileSessionsEndUnderThem) {
  FakeDaemon one, two;
  auto replicas = Open({one.target(), two.target()}, Options());
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 200; ++call) {
        const absl::Status status = replicas.Run(Work);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (int i = 1; i <= 5; ++i) {
    one.Fail("KeepAlive", Refused("DRAINING"), 2);
    two.Fail("KeepAlive", Refused("DRAINING"), 2);
    EXPECT_TRUE(
        Eventually([&] { return one.Calls("KeepAlive") + two.Calls("KeepAlive") >= 100 * i; }));
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(LookupTest, OnlyNamesOfTheNetworkAreLookedUp) {
  for (const char* target : {"unix:/x", "unix-abstract:x", "127.0.0.1:1", "10.0.0.1:1", "[::1]:1",
                             "[fd00::1]:1", "localhost:1", "ipv4:10.0.0.1:1,10.0.0.2:1"}) {
    EXPECT_THAT(*LookUpTarget(target), ElementsAre(target));
    EXPECT_EQ(NameOf(target), "") << target;
  }
  EXPECT_EQ(NameOf("gemm.example:8470"), "gemm.example");
  EXPECT_EQ(NameOf("dns:///gemm.example:8470"), "gemm.example");
  EXPECT_EQ(LookUpTarget("no-such-host.invalid:1").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gemmd::client
