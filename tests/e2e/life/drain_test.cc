// How a daemon ends: readiness first, then no new work, then everything accepted is answered, then
// exit 0; and what a second signal does.

#include <signal.h>

#include <future>

#include "tests/e2e/fixture.h"
#include "tests/e2e/health_watch.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using client::Matmul;
using client::OpList;

// 2 * 640^3 flops: some ms each on two cores.
constexpr int64_t kSide = 640;

class DrainTest : public testing::Test {
 protected:
  // `count` matmuls sent at once; returns when the daemon has taken them all in.
  std::vector<std::future<absl::StatusOr<client::Result>>> Queue(const Daemon& daemon,
                                                                 client::Session& session,
                                                                 int count) {
    x_ = MakeBuffer(session, {kSide, kSide});
    y_ = MakeBuffer(session, {kSide, kSide});
    OpList ops;
    ops.Add(Matmul{.a = x_.tensor(), .b = x_.tensor(), .d = y_.tensor()});
    std::vector<std::future<absl::StatusOr<client::Result>>> futures;
    for (int i = 0; i < count; ++i) futures.push_back(session.ExecuteAsync(ops));
    const auto taken = [&] {
      const Samples samples = daemon.Metrics();
      return Sum(samples, "gemmd_programs") + Sum(samples, "gemmd_ops_total", "op=\"matmul\"") >=
             count;
    };
    EXPECT_TRUE(WaitUntil(taken, absl::Minutes(1)));  // a sanitizer's daemon on a busy machine
    return futures;
  }

  client::Buffer x_, y_;
};

TEST_F(DrainTest, AnswersEverythingAccepted) {
  Daemon daemon({.drain = "drain { notice_ms: 4000 limit_ms: 60000 }"});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  Wire wire(daemon.target());
  HealthWatch watch(wire.channel());
  ASSERT_EQ(watch.Next(absl::Minutes(1)), HealthWatch::kServing);

  // An upload, half done.
  const std::string upload_session = wire.OpenSession();
  const std::string buffer = wire.CreateBuffer(upload_session, 1 << 20);
  grpc::ClientContext context;
  v1::UploadResponse uploaded;
  auto upload = wire.buffers().Upload(&context, &uploaded);
  const std::string half(1 << 19, 'u');
  ASSERT_TRUE(upload->Write(Chunk(upload_session, buffer, 0, half)));
  ASSERT_TRUE(WaitUntil(
      [&] { return wire.GetBuffer(upload_session, buffer).committed_bytes() == 1 << 19; }));
  auto futures = Queue(daemon, session, 200);
  ASSERT_GT(daemon.Metric("gemmd_programs"), 0);

  daemon.process().Signal(SIGTERM);

  // Readiness flips while the listener still takes new connections.
  EXPECT_EQ(watch.Next(absl::Minutes(1)), HealthWatch::kNotServing);
  Wire late(daemon.target());
  v1::ServerInfo info;
  grpc::ClientContext asking;
  const grpc::Status asked = late.devices().GetServerInfo(&asking, {}, &info);
  EXPECT_TRUE(asked.ok()) << asked.error_message();
  EXPECT_TRUE(info.draining());

  ASSERT_TRUE(upload->Write(Chunk(upload_session, buffer, 1 << 19, half)));
  upload->WritesDone();
  const grpc::Status finished = upload->Finish();
  EXPECT_TRUE(finished.ok()) << finished.error_message();
  EXPECT_EQ(uploaded.committed_bytes(), 1 << 20);
  int answered = 0;
  for (auto& future : futures) {
    const absl::StatusOr<client::Result> result = future.get();
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) ++answered;
  }
  EXPECT_EQ(answered, 200);
  // The watch is still open, and does not hold the exit up to the drain limit.
  EXPECT_EQ(daemon.process().Wait(absl::Minutes(1)), 0) << daemon.log();
}

TEST_F(DrainTest, RefusesNewWorkAfterTheNotice) {
  // The limit keeps the queue's stream open long enough to ask.
  Daemon daemon({.drain = "drain { notice_ms: 50 limit_ms: 60000 }"});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  auto futures = Queue(daemon, session, 300);
  daemon.process().Signal(SIGTERM);
  absl::Status refused;
  EXPECT_TRUE(WaitUntil([&] {
    refused = client.OpenSession({.call = {.timeout = absl::Seconds(1)}}).status();
    return absl::IsUnavailable(refused);
  })) << refused;
  int answered = 0;
  for (auto& future : futures) {
    // The last ones may still have been on their way when the notice was over.
    const absl::Status status = future.get().status();
    if (status.ok()) {
      ++answered;
    } else {
      EXPECT_EQ(client::ReasonOf(status), "DRAINING") << status;
    }
  }
  EXPECT_GT(answered, 250);
  EXPECT_EQ(daemon.process().Wait(absl::Minutes(1)), 0);
}

TEST_F(DrainTest, IdleStreamsDoNotDelayIt) {
  Daemon daemon({.drain = "drain { notice_ms: 50 limit_ms: 600000 }"});
  client::Client client = ConnectTo(daemon);
  client::Session held = Must(client.OpenSession());
  client::Queue queue = Must(held.OpenQueue());
  EXPECT_EQ(daemon.Stop(), 0) << daemon.log();
}

TEST_F(DrainTest, TheLimitIsKept) {
  Daemon daemon({.drain = "drain { notice_ms: 50 limit_ms: 500 }"});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  auto futures = Queue(daemon, session, 2000);
  EXPECT_TRUE(daemon.Stop().has_value()) << daemon.log();
  int unavailable = 0;
  for (auto& future : futures) {
    // Answered or refused, but never left hanging.
    if (absl::IsUnavailable(future.get().status())) ++unavailable;
  }
  EXPECT_GT(unavailable, 0);
}

TEST_F(DrainTest, ASecondSignalForces) {
  Daemon daemon({.drain = "drain { notice_ms: 60000 limit_ms: 600000 }"});
  Wire wire(daemon.target());
  HealthWatch watch(wire.channel());
  ASSERT_EQ(watch.Next(absl::Minutes(1)), HealthWatch::kServing);
  daemon.process().Signal(SIGTERM);
  ASSERT_EQ(watch.Next(absl::Minutes(1)), HealthWatch::kNotServing);
  EXPECT_TRUE(daemon.process().running());
  daemon.process().Signal(SIGTERM);
  EXPECT_TRUE(daemon.process().Wait(absl::Minutes(1)).has_value());
}

// Programs of minutes, where those above take milliseconds.
class LongProgramDrainTest : public testing::Test {
 protected:
  LongProgramDrainTest()
      : daemon_({.config = "limits { max_program_ms: 3600000 }",
                 .drain = "drain { notice_ms: 50 limit_ms: 2000 }"}),
        wire_(daemon_.target()) {
    const std::string session = wire_.OpenSession();
    // Five minutes of products of one element with itself.
    const v1::Tensor x =
        View(wire_.CreateBuffer(session, 64), {512, int64_t{1} << 26}, v1::DTYPE_BF16, 0, {0, 0});
    const v1::Tensor y = View(wire_.CreateBuffer(session, 512 * 512 * 4), {512, 512});
    running_ = std::async(std::launch::async, [this, session, x, y] {
      return wire_.Execute(session, {MatmulOp(x, x, y)});
    });
    EXPECT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_programs") >= 1; }));
  }
  // Prints how long it took, and gives the exit status.
  std::optional<int> Ends(const char* what) {
    const absl::Time begin = absl::Now();
    const std::optional<int> status = daemon_.process().Wait(absl::Minutes(1));
    std::printf("ended %s after %s\n", absl::FormatDuration(absl::Now() - begin).c_str(), what);
    return status;
  }

  Daemon daemon_;
  Wire wire_;
  std::future<grpc::Status> running_;
};

TEST_F(LongProgramDrainTest, TheLimitEndsIt) {
  daemon_.process().Signal(SIGTERM);
  EXPECT_EQ(Ends("SIGTERM, with a notice of 50 ms and a limit of 2 s"), 3) << daemon_.log();
  // Its caller was told.
  EXPECT_EQ(running_.get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(LongProgramDrainTest, ASecondSignalEndsIt) {
  daemon_.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return daemon_.log().find("drain_begins") != std::string::npos; }));
  EXPECT_TRUE(daemon_.process().running());
  daemon_.process().Signal(SIGTERM);
  EXPECT_EQ(Ends("the second SIGTERM"), 3) << daemon_.log();
  EXPECT_EQ(running_.get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace gemmd::e2e
