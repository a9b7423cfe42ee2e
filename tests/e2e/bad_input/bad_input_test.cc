// Every line of "bad input gets": a clear error of the right code naming value, limit and remedy,
// nothing left behind, and a daemon that serves on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/bad_input_case.h"
#include "tests/e2e/daemon.h"

namespace gemmd::e2e {
namespace {

using ::testing::HasSubstr;

// Small limits, so that a request can pass them.
constexpr char kLimits[] = R"(
  limits { max_ops: 8 max_inline_bytes: 65536 max_sessions: 4 max_buffers: 6
           max_buffer_bytes: 1048576 max_plans: 2 window_batches: 4 window_bytes: 131072 }
)";

class BadInputTest : public testing::TestWithParam<BadInput> {
 protected:
  BadInputTest() : daemon_({.config = kLimits}), wire_(daemon_.target()) {}

  // 2x2 identity times 2x2: the daemon still multiplies, and the session still serves.
  void ExpectServing(const Prepared& p) {
    const float identity[] = {1, 0, 0, 1};
    const float values[] = {1, 2, 3, 4};
    const auto bytes = [](const float* data) {
      return std::string(reinterpret_cast<const char*>(data), 16);
    };
    v1::ExecuteResponse response;
    const grpc::Status status = wire_.Execute(
        p.session,
        {WriteOp(View(p.a, {2, 2}), bytes(values)), WriteOp(View(p.b, {2, 2}), bytes(identity)),
         MatmulOp(View(p.a, {2, 2}), View(p.b, {2, 2}), View(p.d, {2, 2})),
         ReadOp(View(p.d, {2, 2}))},
        &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.outputs_size(), 1);
    EXPECT_EQ(response.outputs(0), bytes(values));
  }

  Daemon daemon_;
  Wire wire_;
};

TEST_P(BadInputTest, IsRefusedAndLeavesNothing) {
  Prepared p = {wire_, wire_.OpenSession("bad-input"), "", "", ""};
  for (std::string* buffer : {&p.a, &p.b, &p.d}) {
    *buffer = wire_.CreateBuffer(p.session, Prepared::kBytes);
  }
  const Holdings before = HoldingsOf(daemon_);
  ASSERT_EQ(before.buffers, 3);

  const grpc::Status status = GetParam().send(p);

  EXPECT_EQ(status.error_code(), GetParam().code) << status.error_message();
  for (const std::string& fragment : GetParam().says) {
    EXPECT_THAT(status.error_message(), HasSubstr(fragment));
  }
  // A stream's end reaches the gauges a moment after its status reaches us.
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == before; }))
      << testing::PrintToString(HoldingsOf(daemon_))
      << ", before: " << testing::PrintToString(before);
  ExpectServing(p);
  EXPECT_TRUE(wire_.CloseSession(p.session).ok());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon_));
}

std::string NameOf(const testing::TestParamInfo<BadInput>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Tensor, BadInputTest, testing::ValuesIn(BadTensors()), NameOf);
INSTANTIATE_TEST_SUITE_P(Program, BadInputTest, testing::ValuesIn(BadPrograms()), NameOf);
INSTANTIATE_TEST_SUITE_P(Buffer, BadInputTest, testing::ValuesIn(BadBuffers()), NameOf);
INSTANTIATE_TEST_SUITE_P(Choose, BadInputTest, testing::ValuesIn(BadChoose()), NameOf);
INSTANTIATE_TEST_SUITE_P(Gated, BadInputTest, testing::ValuesIn(BadGated()), NameOf);
INSTANTIATE_TEST_SUITE_P(Grouped, BadInputTest, testing::ValuesIn(BadGrouped()), NameOf);
INSTANTIATE_TEST_SUITE_P(KGrouped, BadInputTest, testing::ValuesIn(BadKGrouped()), NameOf);
INSTANTIATE_TEST_SUITE_P(Normalize, BadInputTest, testing::ValuesIn(BadNormalize()), NameOf);
INSTANTIATE_TEST_SUITE_P(Shared, BadInputTest, testing::ValuesIn(BadShared()), NameOf);
INSTANTIATE_TEST_SUITE_P(Queue, BadInputTest, testing::ValuesIn(BadQueues()), NameOf);

}  // namespace
}  // namespace gemmd::e2e
