#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "bench/floor/echo_client.h"
#include "bench/floor/echo_server.h"
#include "bench/floor/ratio.h"
#include "client/cli/run_program.h"

namespace gemmd::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RatioTest, TakesTurnsAndDropsTheFirstOfEach) {
  std::string order;
  double ours = 100, theirs = 10;
  const Ratio ratio = MeasureRatio(
      {.key = "k", .target = 2}, 3,
      [&] {
        order += 'o';
        return ours++;
      },
      [&] {
        order += 't';
        return theirs++;
      });
  EXPECT_EQ(order, "otototot");
  EXPECT_THAT(ratio.ours, ElementsAre(101, 102, 103));
  EXPECT_THAT(ratio.theirs, ElementsAre(11, 12, 13));
  EXPECT_DOUBLE_EQ(ratio.value(), 102.0 / 12);
}

TEST(RatioTest, DriftThatHitsBothSidesCancels) {
  Ratio ratio{
      .spec = {.target = 1.4, .at_most = true}, .ours = {12, 24, 48}, .theirs = {10, 20, 40}};
  EXPECT_DOUBLE_EQ(ratio.value(), 1.2);
  EXPECT_TRUE(ratio.pass());
  ratio.spec.target = 1.1;
  EXPECT_FALSE(ratio.pass());
  ratio.spec.at_most = false;
  EXPECT_TRUE(ratio.pass());
}

TEST(RatioTest, AFailureMakesItMissingAndSaysWhy) {
  const Ratio ratio = MeasureRatio(
      {.key = "k", .target = 2}, 3, [] { return 1.0; },
      [] { return absl::NotFoundError("no OpenBLAS"); });
  EXPECT_FALSE(ratio.measured());
  EXPECT_TRUE(ratio.pass());
  const cli::Json document = RatioJson(ratio);
  EXPECT_TRUE(document["value"].is_null());
  EXPECT_TRUE(document["pass"].is_null());
  EXPECT_EQ(document["missing"], "no OpenBLAS");
  EXPECT_THAT(RatioTable({ratio}), HasSubstr("no OpenBLAS"));
}

TEST(EchoTest, AnswersUnaryStreamAndSinkOnTcpAndUnixSockets) {
  for (const std::string& address :
       {std::string("127.0.0.1:0"), "unix:" + ::testing::TempDir() + "/gemmctl_echo.sock"}) {
    absl::StatusOr<std::unique_ptr<EchoServer>> server = EchoServer::Start(address);
    ASSERT_TRUE(server.ok()) << server.status();
    EchoClient client((*server)->target());
    EXPECT_TRUE(client.Unary(250).ok());
    absl::StatusOr<double> rate = client.StreamRate(250, 8, absl::Milliseconds(50));
    ASSERT_TRUE(rate.ok()) << rate.status();
    EXPECT_GT(*rate, 0);
    absl::StatusOr<double> bytes = client.SinkRate(std::string(3'000'000, 'x'), 1 << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_GT(*bytes, 0);
  }
}

TEST(EchoTest, ReportsAPeerThatIsNotThere) {
  EchoClient client("unix:/no/such/socket");
  EXPECT_THAT(client.Unary(1).message(), HasSubstr("unary call failed"));
  EXPECT_FALSE(EchoServer::Start("unix:/no/such/folder/x.sock").ok());
}

TEST(RunProgramTest, KeepsBothStreamsAndTheStatusApart) {
  absl::StatusOr<cli::ProgramEnd> end =
      cli::RunProgram({"sh", "-c", "echo out; echo error >&2; exit 3"});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->exit_status, 3);
  EXPECT_EQ(end->out, "out\n");
  EXPECT_EQ(end->error, "error\n");
}

TEST(RunProgramTest, TakesMoreThanAPipeHoldsOnEitherStream) {
  absl::StatusOr<cli::ProgramEnd> end =
      cli::RunProgram({"sh", "-c", "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero"});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->out.size(), 300000u);
  EXPECT_EQ(end->error.size(), 300000u);
}

TEST(RunProgramTest, SaysNotFoundAsAShellDoes) {
  EXPECT_EQ(cli::RunProgram({"no-such-program-of-gemmctl"})->exit_status, 127);
}

}  // namespace
}  // namespace gemmd::bench
