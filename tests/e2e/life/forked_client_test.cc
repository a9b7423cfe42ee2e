// What a forked child has of its parent's client: handles that refuse, and whose end harms nothing.
//
// Not beside the client's other tests, which run under ASan: clang 14's leaves its allocator's
// locks as they are in a child, which hangs if another thread was just allocating.

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "client/cpp/armed.h"
#include "client/cpp/errors.h"
#include "client/cpp/replicas.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::ReasonOf;

// y = x . x^T, all of it mapped here.
struct Square {
  explicit Square(client::Session& session) : x(Shared(session)), y(Shared(session)) {
    ops.Add(client::Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
    plan = Must(session.CreatePlan(ops));
    armed = Must(session.Arm(plan));
    queue = Must(session.OpenQueue());
  }
  static client::Buffer Shared(client::Session& session) {
    return Must(session.CreateBuffer({.dtype = client::DType::kF32,
                                      .shape = {4, 4},
                                      .memory_kind = client::MemoryKind::kHostShared}));
  }

  client::Buffer x, y;
  client::OpList ops;
  client::Plan plan;
  client::Armed armed;
  client::Queue queue;
};

// How far a child got, as its exit status, so that a failure says where; 0: every call was refused.
// All that it was given ends with it.
int InChild(client::Client client, client::Session session, Square square,
            client::Replicas<int> replicas, const std::string& target) {
  if (replicas.serving() != 0) return 1;
  const auto work = [](client::Session&, int&) { return absl::OkStatus(); };
  if (ReasonOf(replicas.Run(work)) != "FORKED") return 2;
  if (ReasonOf(session.Execute(square.ops).status()) != "FORKED") return 3;
  if (ReasonOf(session.ExecuteAsync(square.ops).get().status()) != "FORKED") return 4;
  if (ReasonOf(square.x.Upload("byte").status()) != "FORKED") return 5;
  if (ReasonOf(square.plan.Run().status()) != "FORKED") return 6;
  if (ReasonOf(square.queue.Submit(square.ops).status()) != "FORKED") return 7;
  if (ReasonOf(client.GetServerInfo().status()) != "FORKED") return 8;
  if (ReasonOf(client::Client::Connect(target).status()) != "FORKED") return 9;
  if (ReasonOf(square.armed.Ring()) != "FORKED") return 10;
  if (ReasonOf(square.armed.Wait(absl::ZeroDuration())) != "FORKED") return 11;
  if (ReasonOf(square.armed.Disarm()) != "FORKED") return 12;
  return 0;
}

TEST(ForkedClientTest, IsRefusedAndItsEndHarmsNothing) {
  Daemon daemon;
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  Square square(session);
  auto replicas =
      Must(client::Replicas<int>::Open({daemon.target()}, [](client::Session&) { return 1; }));
  // Both Hold streams and the queue's reach the gauge a moment after they were opened.
  ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon).streams == 3; }));
  const Holdings held = HoldingsOf(daemon);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that hangs ends by a signal
    _exit(InChild(std::move(client), std::move(session), std::move(square), std::move(replicas),
                  daemon.target()));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of InChild that failed";
  EXPECT_EQ(HoldingsOf(daemon), held);
  EXPECT_TRUE(session.KeepAlive({.timeout = absl::Seconds(20)}).ok());
  ASSERT_TRUE(square.armed.Ring().ok());
  EXPECT_TRUE(square.armed.Wait(absl::Seconds(20)).ok());
  EXPECT_TRUE(square.queue.Close().ok());
}

}  // namespace
}  // namespace gemmd::e2e
