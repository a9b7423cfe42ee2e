// Many small lives in a row: nothing grows, nothing is left.

#include "tests/e2e/churn.h"

#include <array>
#include <map>
#include <thread>

namespace gemmd::e2e {
namespace {

TEST(ChurnTest, CreateDeleteIsFlat) { ExpectFlat(5000); }

// The negative control: what the test above looks for, it finds.
TEST(ChurnTest, AKeptBufferIsSeen) {
  Daemon daemon;
  Wire wire(daemon.target());
  const std::string session = wire.OpenSession();
  CreateDelete(wire, session, 1000);
  const ProcessUse early = UseOf(daemon.process().pid());
  for (int i = 0; i < 64; ++i) {
    const std::string buffer = wire.CreateBuffer(session, 1 << 20);
    ASSERT_TRUE(wire.Execute(session, {FillOp(View(buffer, {1 << 18}), 1)}).ok());
  }
  EXPECT_GT(UseOf(daemon.process().pid()).resident_bytes, early.resident_bytes * 1.03);
  EXPECT_EQ(HoldingsOf(daemon).buffers, 64);
}

TEST(ChurnTest, SessionsComeAndGo) {
  Daemon daemon;
  Wire wire(daemon.target());
  for (int i = 0; i < 1000; ++i) {
    const std::string session = wire.OpenSession();
    wire.CreateBuffer(session, 4096);
    ASSERT_TRUE(wire.CloseSession(session).ok());
  }
  EXPECT_EQ(HoldingsOf(daemon), Holdings());
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"closed\""), 1000);
}

// 10,000 calls that cannot all be done in time: each is answered, none leaves anything.
TEST(ChurnTest, AStormOfOneMillisecondDeadlines) {
  constexpr int kThreads = 4;
  constexpr int kCallsEach = 2500;
  Daemon daemon;
  Wire setup(daemon.target());
  const std::string session = setup.OpenSession();
  const std::string x = setup.CreateBuffer(session, 256 * 256 * 4);
  const std::string y = setup.CreateBuffer(session, 256 * 256 * 4);
  v1::ExecuteRequest request;
  request.set_session_id(session);
  *request.add_ops() = MatmulOp(View(x, {256, 256}), View(x, {256, 256}), View(y, {256, 256}));

  std::array<std::map<grpc::StatusCode, int>, kThreads> codes;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Wire wire(daemon.target());
      for (int i = 0; i < kCallsEach; ++i) {
        grpc::ClientContext context;
        context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(1)));
        v1::ExecuteResponse response;
        ++codes[t][wire.compute().Execute(&context, request, &response).error_code()];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::map<grpc::StatusCode, int> all;
  for (const auto& one : codes) {
    for (const auto& [code, count] : one) all[code] += count;
  }
  EXPECT_EQ(all[grpc::StatusCode::OK] + all[grpc::StatusCode::DEADLINE_EXCEEDED],
            kThreads * kCallsEach);
  EXPECT_GT(all[grpc::StatusCode::DEADLINE_EXCEEDED], 0);
  // Everything that was taken in is answered and gone.
  EXPECT_TRUE(WaitUntil([&] {
    const Holdings held = HoldingsOf(daemon);
    return held.programs == 0 && held.queued_seconds < 1e-9;
  })) << testing::PrintToString(HoldingsOf(daemon));
  EXPECT_TRUE(setup.CloseSession(session).ok());
  EXPECT_EQ(HoldingsOf(daemon), Holdings());
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace gemmd::e2e
