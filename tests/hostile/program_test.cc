// Programs that would hold the device for minutes: their session's end stops them, strides do not
// hide them from the limit, and the device goes on with others. What else stops a program is in the
// tests of lanes and kernels.

#include <future>

#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

// All that a test here waits for is there within this on a busy machine; the programs take longer.
constexpr absl::Duration kSoon = absl::Minutes(1);

std::string ReasonIn(const grpc::ClientContext& context) {
  const auto found = context.GetServerTrailingMetadata().find("gemmd-reason");
  if (found == context.GetServerTrailingMetadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

struct Answer {
  grpc::Status status;
  std::string reason;
};

class ProgramTest : public testing::Test {
 protected:
  explicit ProgramTest(const std::string& limits = "max_program_ms: 3600000")
      : daemon_({.config = "limits { " + limits + " }"}), wire_(daemon_.target()) {}

  // Five minutes of products of one element with itself.
  static std::vector<v1::Op> LongOps(Wire& wire, const std::string& session) {
    const std::string x = wire.CreateBuffer(session, 64);
    const std::string y = wire.CreateBuffer(session, 512 * 512 * 4);
    const v1::Tensor view = View(x, {512, int64_t{1} << 26}, v1::DTYPE_BF16, 0, {0, 0});
    return {MatmulOp(view, view, View(y, {512, 512}))};
  }
  std::future<Answer> Run(const std::string& session, const std::vector<v1::Op>& ops) {
    return std::async(std::launch::async, [this, session, ops] {
      grpc::ClientContext context;
      v1::ExecuteRequest request;
      request.set_session_id(session);
      for (const v1::Op& op : ops) *request.add_ops() = op;
      v1::ExecuteResponse response;
      Answer answer;
      answer.status = wire_.compute().Execute(&context, request, &response);
      answer.reason = ReasonIn(context);
      return answer;
    });
  }
  bool Runs() {
    return WaitUntil([&] { return daemon_.Metric("gemmd_programs") >= 1; });
  }
  void ExpectOthersAreServed() {
    const std::string session = wire_.OpenSession();
    const std::string x = wire_.CreateBuffer(session, 64);
    const absl::Time begin = absl::Now();
    std::future<Answer> tiny = Run(session, {FillOp(View(x, {16}), 1)});
    ASSERT_EQ(tiny.wait_for(absl::ToChronoSeconds(kSoon)), std::future_status::ready);
    EXPECT_TRUE(tiny.get().status.ok());
    RecordProperty("others_ms", static_cast<int>((absl::Now() - begin) / absl::Milliseconds(1)));
    EXPECT_TRUE(wire_.CloseSession(session).ok());
  }

  Daemon daemon_;
  Wire wire_;
};

TEST_F(ProgramTest, ItsSessionsEndStopsIt) {
  const std::string session = wire_.OpenSession();
  std::future<Answer> running = Run(session, LongOps(wire_, session));
  ASSERT_TRUE(Runs());
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(wire_.CloseSession(session).ok());
  ASSERT_EQ(running.wait_for(absl::ToChronoSeconds(kSoon)), std::future_status::ready);
  std::printf("stopped %s after the session's end\n",
              absl::FormatDuration(absl::Now() - begin).c_str());
  const Answer answer = running.get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(answer.reason, "SESSION_GONE");
  EXPECT_THAT(answer.status.error_message(), testing::HasSubstr("stopped after"));
  ExpectOthersAreServed();
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }));
}

class ProgramLimitTest : public ProgramTest {
 protected:
  ProgramLimitTest() : ProgramTest("max_program_ms: 1000") {}
};

// The estimates of strided copies were a tenth of what they took: nine of these held the device for
// eight seconds.
TEST_F(ProgramLimitTest, StridedCopiesCannotHideTheirTime) {
  const std::string session = wire_.OpenSession();
  constexpr int64_t kSide = 16384;
  const std::string x = wire_.CreateBuffer(session, kSide * kSide);
  const std::string y = wire_.CreateBuffer(session, kSide * kSide);
  const v1::Op copy = CopyOp(View(x, {kSide, kSide}, v1::DTYPE_I8, 0, {1, kSide}),
                             View(y, {kSide, kSide}, v1::DTYPE_I8));
  std::future<Answer> refused = Run(session, std::vector<v1::Op>(9, copy));
  const Answer answer = refused.get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(answer.reason, "PROGRAM_LIMIT");
  ExpectOthersAreServed();
}

}  // namespace
}  // namespace gemmd::e2e
