// Many small lives in a row: nothing grows, nothing is left.

#include "tests/e2e/churn.h"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
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
  EXPECT_GT(UseOf(daemon.process().pid()).resident_bytes, early.resident_bytes + kArenaBytes);
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

// Text of a client's choosing, another one for each `number`: were any of it a label's value, the
// number of series would grow. Some is taken, some is refused.
std::string Hostile(int number) {
  const std::string unique = std::to_string(number);
  switch (number % 6) {
    case 0:
      return "\"} 1 gemmd_forged{x=\"" + unique;
    case 1:
      return unique + "\\";
    case 2:
      return "a\ngemmd_forged_total 1\n" + unique;
    case 3:
      return "\u00fc\u2028\U0001F600 " + unique;
    case 4:
      return std::string(100000, 'x') + unique;
    default:
      return "{le=\"" + unique + "\"}";
  }
}

// A session, whatever else takes a name, and its end. Statuses are the other tests' business; what
// counts here is what stays behind.
void LiveUnderHostileNames(Wire& wire, int number) {
  const std::string name = Hostile(number);
  const auto context = [&] {
    auto made = std::make_unique<grpc::ClientContext>();
    made->AddMetadata("traceparent", "00-" + std::to_string(number));
    made->AddMetadata("gemmd-tenant", std::to_string(number));
    return made;
  };
  v1::OpenSessionRequest open;
  open.set_label(name);
  v1::OpenSessionResponse opened;
  const bool taken = wire.sessions().OpenSession(context().get(), open, &opened).ok();
  ASSERT_EQ(taken, number % 6 != 2 && number % 6 != 3 && number % 6 != 4) << number;
  const std::string session = taken ? opened.session_id() : wire.OpenSession();
  const std::string buffer = wire.CreateBuffer(session, 64);
  v1::PublishBufferRequest publish;
  publish.set_session_id(session);
  publish.set_buffer_id(buffer);
  publish.set_name(name);
  v1::PublishBufferResponse published;
  EXPECT_FALSE(wire.buffers().PublishBuffer(context().get(), publish, &published).ok());
  v1::ExecuteRequest execute;
  execute.set_session_id(session);
  execute.set_op_id(std::to_string(number));
  *execute.add_ops() = MatmulOp(View(buffer, {1, 4}), View(buffer, {1, 4}, v1::DTYPE_F32, 16),
                                View(buffer, {1, 1}, v1::DTYPE_F32, 32));
  execute.mutable_ops(0)->mutable_matmul()->set_kernel(name);
  v1::ExecuteResponse executed;
  EXPECT_FALSE(wire.compute().Execute(context().get(), execute, &executed).ok());
  EXPECT_TRUE(wire.CloseSession(session).ok());
}

std::set<std::string> SeriesOf(const Daemon& daemon) {
  std::set<std::string> series;
  for (const auto& [name, value] : daemon.Metrics()) series.insert(name);
  return series;
}

TEST(ChurnTest, TenThousandSessionsWithHostileLabelsAddNoSeries) {
  Daemon daemon;
  Wire wire(daemon.target());
  // One of each kind: series that begin with their first event are there from then on.
  for (int i = 0; i < 6; ++i) LiveUnderHostileNames(wire, i);
  const std::set<std::string> before = SeriesOf(daemon);
  ASSERT_GT(before.size(), 100u);
  for (int i = 6; i < 10000; ++i) LiveUnderHostileNames(wire, i);
  EXPECT_EQ(SeriesOf(daemon), before);
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"closed\""), 10000);
  EXPECT_EQ(HoldingsOf(daemon), Holdings());
  // The negative control: one that is new is seen.
  EXPECT_FALSE(wire.CloseSession("not a session").ok());
  EXPECT_EQ(SeriesOf(daemon).size(), before.size() + 1);
  std::printf("10000 sessions: %zu series before and after\n", before.size());
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
  // UNAVAILABLE is a connection's that was cut for its many resets, which come on a busy machine.
  EXPECT_EQ(all[grpc::StatusCode::OK] + all[grpc::StatusCode::DEADLINE_EXCEEDED] +
                all[grpc::StatusCode::UNAVAILABLE],
            kThreads * kCallsEach)
      << testing::PrintToString(all);
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
