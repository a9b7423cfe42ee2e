// Armed plans by the C++ client, against a real daemon.

#include <signal.h>

#include <cstring>
#include <random>
#include <thread>

#include "client/cpp/armed.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Armed;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// y = x . w^T with x and y mapped here; w is twice the unit matrix.
struct Doubling {
  explicit Doubling(client::Session& session, int64_t size = 8)
      : x(Shared(session, size)), y(Shared(session, size)), w(MakeBuffer(session, {size, size})) {
    std::vector<float> unit(static_cast<size_t>(size * size));
    for (int64_t i = 0; i < size; ++i) unit[static_cast<size_t>(i * (size + 1))] = 2;
    EXPECT_TRUE(w.Upload(Floats(unit)).ok());
    client::OpList ops;
    ops.Add(client::Matmul{.a = x.tensor(), .b = w.tensor(), .d = y.tensor()});
    plan = Must(session.CreatePlan(ops));
  }
  static client::Buffer Shared(client::Session& session, int64_t size) {
    return Must(session.CreateBuffer({.dtype = client::DType::kF32,
                                      .shape = {size, size},
                                      .memory_kind = client::MemoryKind::kHostShared}));
  }
  void Fill(float value) {
    const absl::Span<char> bytes = Must(x.Map());
    for (size_t at = 0; at < bytes.size(); at += sizeof(value)) {
      std::memcpy(bytes.data() + at, &value, sizeof(value));
    }
  }
  float Result() {
    float value;
    std::memcpy(&value, Must(y.Map()).data(), sizeof(value));
    return value;
  }

  client::Buffer x, y, w;
  client::Plan plan;
};

class ArmedClientTest : public E2eTest {
 protected:
  ArmedClientTest() : E2eTest({.config = "session { default_grace_ms: 200 }"}) {}
};

TEST_F(ArmedClientTest, EachRingRunsThePlanOnWhatItsBuffersHold) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  EXPECT_EQ(armed.device(), TestDevice());
  EXPECT_EQ(armed.report().run, 0);
  for (int run = 1; run <= 5; ++run) {
    doubling.Fill(static_cast<float>(run));
    ASSERT_TRUE(armed.Ring().ok());
    ASSERT_TRUE(armed.Wait(kPatience).ok());
    EXPECT_EQ(doubling.Result(), 2.0F * static_cast<float>(run));
    EXPECT_EQ(armed.report().run, run);
    EXPECT_GT(armed.report().device, absl::ZeroDuration());
  }
  EXPECT_TRUE(armed.status().ok());
}

TEST_F(ArmedClientTest, TwentyThousandInARow) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  for (int run = 0; run < 20'000; ++run) {
    doubling.Fill(static_cast<float>(run % 1000));
    ASSERT_TRUE(armed.Ring().ok());
    const absl::Status ran = armed.Wait(kPatience);
    ASSERT_TRUE(ran.ok()) << run << ": " << ran;
    ASSERT_EQ(doubling.Result(), 2.0F * static_cast<float>(run % 1000)) << run;
  }
}

TEST_F(ArmedClientTest, BuffersMayTakeThePlaceOfThePlans) {
  Doubling doubling(session_), other(session_);
  Armed armed = Must(session_.Arm(doubling.plan, {{doubling.x.id(), other.x.id()}}));
  doubling.Fill(1);
  other.Fill(21);
  ASSERT_TRUE(armed.Ring().ok());
  ASSERT_TRUE(armed.Wait(kPatience).ok());
  EXPECT_EQ(doubling.Result(), 42);
}

TEST_F(ArmedClientTest, OnePlanInSeveralSlotsRunsSeveralTimes) {
  Doubling doubling(session_);
  std::vector<Armed> armed;
  for (int i = 0; i < 4; ++i) armed.push_back(Must(session_.Arm(doubling.plan)));
  for (Armed& one : armed) ASSERT_TRUE(one.Ring().ok());
  for (Armed& one : armed) EXPECT_TRUE(one.Wait(kPatience).ok());
  EXPECT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_armed_runs_total") == 4; }));
}

TEST_F(ArmedClientTest, WhatCannotBeArmedIsRefused) {
  Doubling doubling(session_);
  client::Session other = Must(client_.OpenSession());
  EXPECT_EQ(other.Arm(doubling.plan).status().code(), absl::StatusCode::kNotFound);
  client::OpList reading;
  reading.Add(client::Read{doubling.x.tensor()});
  const client::Plan with_read = Must(session_.CreatePlan(reading));
  EXPECT_EQ(session_.Arm(with_read).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Armed().Ring().ok());
  EXPECT_FALSE(Armed().Wait().ok());

  client::Client apart = Must(client::Client::Connect(daemon_.target(), {.shared_memory = false}));
  client::Session elsewhere = Must(apart.OpenSession());
  EXPECT_EQ(elsewhere.Arm(doubling.plan).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ArmedClientTest, RingsAndWaitsOutOfTurnAreRefused) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  EXPECT_EQ(armed.Wait().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(armed.Ring().ok());
  EXPECT_THAT(armed.Ring().message(), HasSubstr("wait for it first"));
  EXPECT_TRUE(armed.Wait(kPatience).ok());
  EXPECT_THAT(armed.RingOn(nullptr).message(), HasSubstr("rung_by_stream"));
}

TEST_F(ArmedClientTest, ABufferThatIsDeletedFailsTheNextRun) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  ASSERT_TRUE(doubling.w.Delete().ok());
  ASSERT_TRUE(armed.Ring().ok());
  const absl::Status failed = armed.Wait(kPatience);
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(failed.message(), HasSubstr("BUFFER_GONE"));
  EXPECT_FALSE(armed.status().ok());
}

TEST_F(ArmedClientTest, DisarmingFreesTheSlot) {
  Doubling doubling(session_);
  {
    Armed first = Must(session_.Arm(doubling.plan));
    Armed second = Must(session_.Arm(doubling.plan));
    EXPECT_EQ(daemon_.Metric("gemmd_armed_slots"), 2);
    EXPECT_TRUE(first.Disarm().ok());
    EXPECT_FALSE(first.Ring().ok());
    EXPECT_EQ(daemon_.Metric("gemmd_armed_slots"), 1);
  }
  EXPECT_EQ(daemon_.Metric("gemmd_armed_slots"), 0);
}

TEST_F(ArmedClientTest, TheSessionsEndIsTold) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  ASSERT_TRUE(session_.Close().ok());
  EXPECT_TRUE(WaitUntil([&] { return absl::IsUnavailable(armed.Ring()) || !armed.Wait().ok(); }));
  EXPECT_TRUE(WaitUntil([&] { return absl::IsUnavailable(armed.Ring()); }));
}

TEST_F(ArmedClientTest, ADaemonThatIsKilledWithWorkRungEndsTheWait) {
  Doubling doubling(session_, 512);
  client::OpList ops;
  for (int i = 0; i < 500; ++i) {
    ops.Add(client::Matmul{
        .a = doubling.x.tensor(), .b = doubling.w.tensor(), .d = doubling.y.tensor()});
  }
  const client::Plan longer = Must(session_.CreatePlan(ops));
  Armed armed = Must(session_.Arm(longer));
  ASSERT_TRUE(armed.Ring().ok());
  daemon_.process().Signal(SIGKILL);
  const absl::Status ended = armed.Wait(kPatience);
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  EXPECT_TRUE(absl::IsUnavailable(armed.Ring()));
}

TEST_F(ArmedClientTest, ClientsThatAreKilledLeaveNothingAndDisturbNobody) {
  Doubling doubling(session_);
  Armed armed = Must(session_.Arm(doubling.plan));
  ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_).streams == 1; }));
  const Holdings baseline = HoldingsOf(daemon_);
  std::mt19937 random(std::random_device{}());
  int run = 0;
  const auto still_right = [&] {
    doubling.Fill(static_cast<float>(++run % 100));
    EXPECT_TRUE(armed.Ring().ok());
    EXPECT_TRUE(armed.Wait(kPatience).ok());
    EXPECT_EQ(doubling.Result(), 2.0F * static_cast<float>(run % 100));
  };
  for (int i = 0; i < 20; ++i) {
    Process doomed = Process::Start({DOOMED_CLIENT_PATH, daemon_.target(), "armed"}, daemon_.dir());
    ASSERT_TRUE(WaitUntil([&] { return doomed.out() == "ready\n"; })) << doomed.err();
    for (unsigned rings = random() % 100; rings > 0; --rings) still_right();
    doomed.Signal(SIGKILL);
    ASSERT_EQ(doomed.Wait(kPatience), 128 + SIGKILL);
    still_right();
  }
  // A client may die before its stream that holds the session is open: that one's session lives for
  // its 30 s.
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == baseline; }, absl::Minutes(1)))
      << testing::PrintToString(HoldingsOf(daemon_));
  EXPECT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_armed_slots") == 1; }));
}

}  // namespace
}  // namespace gemmd::e2e
