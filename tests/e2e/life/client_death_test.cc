// What is left of a client that is killed: nothing, once the grace time is over.

#include <signal.h>

#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

class ClientDeathTest : public testing::Test {
 protected:
  // Starts it and waits until it owns everything.
  Process StartDoomed(const Daemon& daemon) {
    Process doomed = Process::Start({DOOMED_CLIENT_PATH, daemon.target()}, daemon.dir());
    EXPECT_TRUE(WaitUntil([&] { return doomed.out() == "ready\n"; })) << doomed.err();
    return doomed;
  }
};

TEST_F(ClientDeathTest, BytesBuffersAndSessionsComeBack) {
  Daemon daemon({.config = "session { default_grace_ms: 200 }"});
  client::Client survivor = ConnectTo(daemon);
  client::Session session = Must(survivor.OpenSession());
  client::Buffer kept = MakeBuffer(session, {16});
  // The survivor's Hold stream reaches the gauge a moment after OpenSession returns.
  ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon).streams == 1; }));
  const Holdings baseline = HoldingsOf(daemon);

  Process doomed = StartDoomed(daemon);
  const Holdings owned = HoldingsOf(daemon);
  EXPECT_EQ(owned.buffers, baseline.buffers + 100);
  EXPECT_EQ(owned.buffer_bytes, baseline.buffer_bytes + (100 << 20));
  EXPECT_GE(owned.streams, baseline.streams + 2);  // Hold and Upload

  doomed.Signal(SIGKILL);
  ASSERT_EQ(doomed.Wait(absl::Minutes(1)), 128 + SIGKILL);

  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == baseline; }))
      << testing::PrintToString(HoldingsOf(daemon)) << ", baseline "
      << testing::PrintToString(baseline);
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"cut\""), 1);
  EXPECT_TRUE(session.GetBuffer(kept.id()).ok());
}

TEST_F(ClientDeathTest, ASessionThatIsClosedIsNoFailedCall) {
  Daemon daemon;
  client::Client client = ConnectTo(daemon);
  for (int i = 0; i < 5; ++i) {
    client::Session session = Must(client.OpenSession());
    ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon).streams == 1; }));
    ASSERT_TRUE(session.Close().ok());
    ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }));
  }
  EXPECT_TRUE(WaitUntil(
      [&] { return daemon.Metric("gemmd_requests_total", "code=\"OK\",method=\"Hold\"") == 5; }));
  EXPECT_THAT(daemon.process().err(), testing::HasSubstr("session_ended"));
  EXPECT_THAT(daemon.process().err(), testing::Not(testing::HasSubstr("call_failed")));
}

// What a client sent last is read after the end of its Hold stream was, on a busy machine often:
// its ttl would keep the buffers for half a minute here, and for an hour where the client asked for
// one.
TEST_F(ClientDeathTest, ACallThatComesLateKeepsNothing) {
  Daemon daemon({.config = "session { max_ttl_ms: 3600000 }"});
  Wire wire(daemon.target());
  v1::OpenSessionRequest open;
  open.mutable_ttl()->set_seconds(3600);
  open.mutable_grace()->set_nanos(absl::ToInt64Nanoseconds(absl::Milliseconds(900)));
  v1::OpenSessionResponse opened;
  grpc::ClientContext opening;
  ASSERT_TRUE(wire.sessions().OpenSession(&opening, open, &opened).ok());
  const std::string buffer = wire.CreateBuffer(opened.session_id(), 1 << 20);
  grpc::ClientContext holding;
  v1::HoldRequest hold;
  hold.set_session_id(opened.session_id());
  auto held = wire.sessions().Hold(&holding, hold);
  v1::HoldEvent event;
  ASSERT_TRUE(held->Read(&event));
  holding.TryCancel();
  ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon).streams == 0; }));
  EXPECT_TRUE(wire.Execute(opened.session_id(), {FillOp(View(buffer, {16}), 1)}).ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon));
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"cut\""), 1);
}

TEST_F(ClientDeathTest, TenInARowLeaveNoDescriptor) {
  Daemon daemon({.config = "session { default_grace_ms: 100 }"});
  ProcessUse first;
  for (int i = 0; i < 10; ++i) {
    StartDoomed(daemon).Signal(SIGKILL);
    ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }));
    if (i == 1) first = UseOf(daemon.process().pid());
  }
  // Metrics connections come and go: a few descriptors of slack, far below one a client.
  ProcessUse last;
  EXPECT_TRUE(WaitUntil([&] {
    last = UseOf(daemon.process().pid());
    return last.descriptors <= first.descriptors + 2;
  })) << first.descriptors
      << " descriptors after two clients, " << last.descriptors << " after ten";
}

// Without a Hold stream nobody sees the death: the ttl does it.
TEST_F(ClientDeathTest, AnAbandonedSessionExpires) {
  Daemon daemon;
  client::Client client = ConnectTo(daemon);
  {
    client::Session session = Must(client.OpenSession(
        {.ttl = absl::Seconds(3), .liveness = client::SessionOptions::Liveness::kNone}));
    MakeBuffer(session, {16}).Release();
    session.Release();
  }
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }));
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"expired\""), 1);
}

}  // namespace
}  // namespace gemmd::e2e
