#include "client/cpp/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/client/cpp/eventually.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

using ::testing::HasSubstr;

// Collects what a session tells.
class Events {
 public:
  std::function<void(const SessionEvent&)> Sink() {
    return [this](const SessionEvent& event) {
      absl::MutexLock lock(&mu_);
      events_.push_back(event);
    };
  }
  std::vector<SessionEvent> Get() {
    absl::MutexLock lock(&mu_);
    return events_;
  }

 private:
  absl::Mutex mu_;
  std::vector<SessionEvent> events_;
};

TEST(SessionTest, DestructionClosesIt) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  {
    absl::StatusOr<Session> session = client.OpenSession({.label = "test", .device = "cpu:1"});
    ASSERT_TRUE(session.ok());
    EXPECT_EQ(session->device(), "cpu:1");
    EXPECT_EQ(session->name(), "s-1");
    EXPECT_EQ(session->ttl(), absl::Seconds(30));
    EXPECT_EQ(daemon.OpenSessions(), 1);
    Session moved = *std::move(session);
    EXPECT_EQ(daemon.OpenSessions(), 1);
  }
  EXPECT_EQ(daemon.OpenSessions(), 0);
  EXPECT_EQ(daemon.Calls("CloseSession"), 1);
}

TEST(SessionTest, CloseTellsWhatWasFreedAndIsDoneOnce) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  Buffer buffer = *session.CreateBuffer({.size_bytes = 100});
  const absl::StatusOr<SessionClosed> closed = session.Close();
  ASSERT_TRUE(closed.ok());
  EXPECT_EQ(closed->freed_bytes, 100);
  EXPECT_EQ(closed->freed_buffers, 1);
  EXPECT_EQ(session.Close().status().code(), absl::StatusCode::kFailedPrecondition);
  buffer = Buffer();
  EXPECT_EQ(daemon.Calls("DeleteBuffers"), 0) << "it went with the session";
}

TEST(SessionTest, DestructionClosesItWhileItsBuffersLiveOn) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Buffer buffer;
  {
    Session session = *client.OpenSession();
    buffer = *session.CreateBuffer({.size_bytes = 100});
  }
  EXPECT_EQ(daemon.OpenSessions(), 0);
  EXPECT_EQ(buffer.Upload("x").status().code(), absl::StatusCode::kNotFound);
}

TEST(SessionTest, SessionOutlivesTheClientObject) {
  FakeDaemon daemon;
  absl::StatusOr<Session> session = absl::UnknownError("");
  {
    Client client = ConnectTo(daemon);
    session = client.OpenSession();
  }
  EXPECT_TRUE(session->KeepAlive().ok());
}

TEST(SessionTest, HoldStreamStandsWhileTheSessionDoes) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  {
    Session session = *client.OpenSession();
    EXPECT_TRUE(Eventually([&] { return daemon.HeldSessions() == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return daemon.HeldSessions() == 0; }));
}

TEST(SessionTest, CutHoldStreamIsOpenedAgainAndCounted) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  ASSERT_TRUE(Eventually([&] { return daemon.HeldSessions() == 1; }));
  daemon.CutHolds();
  EXPECT_TRUE(Eventually([&] { return daemon.Calls("Hold") == 2 && daemon.HeldSessions() == 1; }));
  EXPECT_EQ(session.background_errors(), 1);
}

TEST(SessionTest, HoldTakenOverByAnotherStreamIsLeftToIt) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Events events;
  daemon.Fail("Hold", Signed(absl::AbortedError("another stream holds it"), "CANCELLED"));
  {
    Session session = *client.OpenSession({.on_event = events.Sink()});
    ASSERT_TRUE(Eventually([&] { return daemon.Calls("Hold") == 1; }));
    EXPECT_TRUE(session.KeepAlive().ok());
  }
  EXPECT_EQ(daemon.Calls("Hold"), 1);
  EXPECT_TRUE(events.Get().empty());
}

TEST(SessionTest, DrainNoticeReachesTheCaller) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Events events;
  Session session = *client.OpenSession({.on_event = events.Sink()});
  ASSERT_TRUE(Eventually([&] { return daemon.HeldSessions() == 1; }));
  const absl::Time deadline = absl::FromUnixSeconds(5000000000);
  daemon.AnnounceDrain(deadline);
  ASSERT_TRUE(Eventually([&] { return events.Get().size() == 1; }));
  EXPECT_EQ(events.Get()[0].kind, SessionEvent::Kind::kDraining);
  EXPECT_EQ(events.Get()[0].deadline, deadline);
}

TEST(SessionTest, EndedSessionIsToldOnceWhicheverWayItIsKept) {
  for (auto liveness : {SessionOptions::Liveness::kHold, SessionOptions::Liveness::kKeepAlive}) {
    FakeDaemon daemon;
    Client client = ConnectTo(daemon);
    Events events;
    Session session = *client.OpenSession(
        {.ttl = absl::Milliseconds(900), .liveness = liveness, .on_event = events.Sink()});
    ASSERT_TRUE(Eventually([&] { return daemon.Calls("Hold") + daemon.Calls("KeepAlive") > 0; }));
    daemon.EndSessions();
    ASSERT_TRUE(Eventually([&] { return events.Get().size() == 1; }));
    EXPECT_EQ(events.Get()[0].kind, SessionEvent::Kind::kEnded);
    EXPECT_EQ(events.Get()[0].status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReasonOf(events.Get()[0].status), "GONE");
  }
}

TEST(SessionTest, KeepAliveCallsComeThriceATtlAndNoStreamIsOpened) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession(
      {.ttl = absl::Milliseconds(600), .liveness = SessionOptions::Liveness::kKeepAlive});
  EXPECT_TRUE(Eventually([&] { return daemon.Calls("KeepAlive") >= 3; }));
  EXPECT_EQ(daemon.Calls("Hold"), 0);
}

TEST(SessionTest, KeepAliveOutlastsAServerThatIsAwayForLessThanTheTtl) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon, {.retry = {.max_attempts = 1}});
  Events events;
  Session session = *client.OpenSession({.ttl = absl::Seconds(6),
                                         .liveness = SessionOptions::Liveness::kKeepAlive,
                                         .on_event = events.Sink()});
  daemon.Fail("KeepAlive", Torn(), /*times=*/2);
  EXPECT_TRUE(Eventually([&] { return daemon.Calls("KeepAlive") >= 3; }));
  EXPECT_EQ(session.background_errors(), 2);
  EXPECT_TRUE(events.Get().empty());
}

TEST(SessionTest, AttachedSessionIsCheckedAndLeftOpen) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session first = *client.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  const Handle id = first.Release();
  {
    Session session = *client.AttachSession(id);
    EXPECT_EQ(session.id(), id);
    EXPECT_TRUE(session.KeepAlive().ok());
  }
  EXPECT_EQ(daemon.OpenSessions(), 1);
  EXPECT_EQ(client.AttachSession(Handle()).status().code(), absl::StatusCode::kNotFound);
}

TEST(SessionTest, CloseThatFailsOnDestructionIsCountedAndTold) {
  FakeDaemon daemon;
  std::string told;
  Client client = ConnectTo(
      daemon, {.on_background_error = [&](absl::string_view what, const absl::Status& status) {
        told = std::string(what) + ": " + std::string(status.message());
      }});
  {
    Session session = *client.OpenSession({.liveness = SessionOptions::Liveness::kNone});
    daemon.Fail("CloseSession", absl::InternalError("broken"));
  }
  EXPECT_THAT(told, HasSubstr("close session: broken"));
}

}  // namespace
}  // namespace gemmd::client
