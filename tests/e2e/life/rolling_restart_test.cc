// Two daemons behind one client, restarted one after the other while it works: no call fails.

#include <signal.h>

#include <atomic>
#include <thread>

#include "client/cpp/replicas.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Buffer;
using client::OpList;
using client::Replicas;
using client::Session;

constexpr int kRows = 4, kColumns = 8, kDepth = 16;

struct Layer {
  Buffer x, w, y;
};

std::vector<float> Weights() {
  std::vector<float> weights(kColumns * kDepth);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  return weights;
}

absl::StatusOr<Layer> MakeLayer(Session& session) {
  auto x = session.CreateBuffer({.dtype = client::DType::kF32, .shape = {kRows, kDepth}});
  auto w = session.CreateBuffer({.dtype = client::DType::kF32, .shape = {kColumns, kDepth}});
  auto y = session.CreateBuffer({.dtype = client::DType::kF32, .shape = {kRows, kColumns}});
  for (const auto* buffer : {&x, &w, &y}) {
    if (!buffer->ok()) return buffer->status();
  }
  if (auto moved = w->Upload(Floats(Weights())); !moved.ok()) return moved.status();
  return Layer{*std::move(x), *std::move(w), *std::move(y)};
}

// Small whole numbers: exact in any order of summing, and another call's result is not this one's.
std::vector<float> Input(int call) {
  std::vector<float> x(kRows * kDepth);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 5 + call) % 11) - 5;
  return x;
}

std::vector<float> Expected(const std::vector<float>& x) {
  const std::vector<float> w = Weights();
  std::vector<float> y(kRows * kColumns);
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kColumns; ++n) {
      for (int k = 0; k < kDepth; ++k) y[m * kColumns + n] += x[m * kDepth + k] * w[n * kDepth + k];
    }
  }
  return y;
}

absl::StatusOr<client::Result> Multiply(Session& session, Layer& layer,
                                        const std::vector<float>& x) {
  OpList ops;
  ops.Add(client::Write{layer.x.tensor(), Floats(x)});
  ops.Add(client::Matmul{.a = layer.x.tensor(), .b = layer.w.tensor(), .d = layer.y.tensor()});
  ops.Add(client::Read{layer.y.tensor()});
  return session.Execute(ops);
}

// Threads that multiply until they are told to stop and have made `calls` calls together.
class Load {
 public:
  Load(Replicas<Layer>& layers, int calls) {
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back([this, &layers, calls] {
        while (!stop_ || calls_ < calls) One(layers, calls_++);
      });
    }
  }
  void AwaitMore(int calls) {
    EXPECT_TRUE(WaitUntil([this, until = calls_ + calls] { return calls_ > until; }));
  }
  int Finish() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    return calls_;
  }
  int failed() const { return failed_; }

 private:
  void One(Replicas<Layer>& layers, int call) {
    const std::vector<float> x = Input(call);
    std::vector<float> y;
    const absl::Status status = layers.Run([&](Session& session, Layer& layer) {
      const absl::StatusOr<client::Result> result = Multiply(session, layer, x);
      if (result.ok()) y = FloatsOf(*result);
      return result.status();
    });
    if (status.ok() && y == Expected(x)) return;
    ++failed_;
    ADD_FAILURE() << "call " << call << ": "
                  << (status.ok() ? "not the product" : status.ToString());
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int> calls_ = 0;
  std::atomic<int> failed_ = 0;
  std::vector<std::thread> threads_;
};

class RollingRestartTest : public testing::Test {
 protected:
  // As deploy/ has it, with a shorter notice.
  static DaemonOptions Options() { return {.drain = "drain { notice_ms: 300 limit_ms: 20000 }"}; }

  void ExpectNoFailedCall(int calls, int rounds) {
    Daemon one(Options()), two(Options());
    auto layers = Must(Replicas<Layer>::Open({one.target(), two.target()}, MakeLayer));
    ASSERT_TRUE(WaitUntil([&] { return layers.serving() == 2; }));
    Load load(layers, calls);
    for (int round = 0; round < rounds; ++round) {
      for (Daemon* daemon : {&one, &two}) {
        load.AwaitMore(200);
        EXPECT_EQ(daemon->Stop(), 0) << daemon->log();
        load.AwaitMore(200);  // the other one alone
        daemon->Start();
        // As a rolling update does, on to the next one when this one is there again.
        EXPECT_TRUE(WaitUntil([&] { return layers.serving() == 2; }));
      }
    }
    const int made = load.Finish();
    EXPECT_GE(made, calls);
    EXPECT_EQ(load.failed(), 0);
    std::printf("%d calls, %d failed, %d restarts\n", made, load.failed(), 2 * rounds);
  }
};

TEST_F(RollingRestartTest, NoneOfTwentyThousandCallsFails) { ExpectNoFailedCall(20000, 3); }

// Why there are Replicas: by itself a session ends with its server.
TEST_F(RollingRestartTest, WithoutReplicasTheSessionIsGone) {
  Daemon daemon(Options());
  client::Client client = ConnectTo(daemon);
  Session session = Must(client.OpenSession());
  Layer layer = Must(MakeLayer(session));
  EXPECT_TRUE(Multiply(session, layer, Input(0)).ok());
  EXPECT_EQ(daemon.Stop(), 0);
  daemon.Start();
  absl::Status lost;
  EXPECT_TRUE(WaitUntil([&] {
    lost = Multiply(session, layer, Input(0)).status();
    return !absl::IsUnavailable(lost);
  }));
  EXPECT_EQ(client::ReasonOf(lost), "SESSION_GONE") << lost;
}

TEST_F(RollingRestartTest, ASingleServersRestartIsWaitedFor) {
  Daemon daemon(Options());
  auto layers = Must(Replicas<Layer>::Open({daemon.target()}, MakeLayer));
  Load load(layers, 100);
  load.AwaitMore(50);
  EXPECT_EQ(daemon.Stop(), 0);
  daemon.Start();
  load.AwaitMore(50);
  load.Finish();
  EXPECT_EQ(load.failed(), 0);
}

// No drain: what was under way is lost with the server, and made again.
TEST_F(RollingRestartTest, AServerThatIsKilledFailsNoCallEither) {
  Daemon one(Options()), two(Options());
  auto layers = Must(Replicas<Layer>::Open({one.target(), two.target()}, MakeLayer));
  ASSERT_TRUE(WaitUntil([&] { return layers.serving() == 2; }));
  Load load(layers, 1000);
  for (Daemon* daemon : {&one, &two}) {
    load.AwaitMore(200);
    daemon->process().Signal(SIGKILL);
    EXPECT_TRUE(daemon->process().Wait(absl::Minutes(1)).has_value());
    load.AwaitMore(200);
    daemon->Start();
    EXPECT_TRUE(WaitUntil([&] { return layers.serving() == 2; }));
  }
  load.Finish();
  EXPECT_EQ(load.failed(), 0);
}

}  // namespace
}  // namespace gemmd::e2e
