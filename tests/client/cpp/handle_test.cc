// Handles that hold nothing, are moved onto themselves, or are inherited by a fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "client/cpp/armed.h"
#include "client/cpp/client.h"
#include "client/cpp/errors.h"
#include "client/cpp/replicas.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/client/cpp/fake_daemon.h"

namespace gemmd::client {
namespace {

constexpr absl::StatusCode kRefused = absl::StatusCode::kFailedPrecondition;

TEST(HandleTest, OneThatHoldsNothingRefusesWhatIsAskedOfIt) {
  Client client;
  EXPECT_EQ(client.target(), "");
  EXPECT_EQ(client.OpenSession().status().code(), kRefused);
  EXPECT_EQ(client.GetServerInfo().status().code(), kRefused);
  EXPECT_EQ(client.CheckHealth().status().code(), kRefused);
  EXPECT_FALSE(client.SharesHost());

  Session session;
  Buffer buffer;
  Plan plan;
  EXPECT_TRUE(session.id().empty());
  EXPECT_EQ(session.name(), "");
  EXPECT_EQ(session.Execute(OpList()).status().code(), kRefused);
  EXPECT_EQ(session.ExecuteAsync(OpList()).get().status().code(), kRefused);
  EXPECT_EQ(session.CreateBuffer({.size_bytes = 4}).status().code(), kRefused);
  EXPECT_EQ(session.CreatePlan(OpList()).status().code(), kRefused);
  EXPECT_EQ(session.OpenQueue().status().code(), kRefused);
  EXPECT_EQ(session.Arm(plan).status().code(), kRefused);
  EXPECT_EQ(session.Publish(buffer, "w").code(), kRefused);
  EXPECT_EQ(session.Close().status().code(), kRefused);
  EXPECT_TRUE(session.Release().empty());
  session.FlushDeletions();

  EXPECT_TRUE(buffer.id().empty());
  EXPECT_EQ(buffer.size_bytes(), 0);
  EXPECT_FALSE(buffer.tensor().status().ok());
  EXPECT_EQ(buffer.Upload("bytes").status().code(), kRefused);

  EXPECT_TRUE(plan.id().empty());
  EXPECT_EQ(plan.info().device(), "");
  EXPECT_EQ(plan.Run().status().code(), kRefused);
  plan.RunAsync({}, {}, [](const absl::StatusOr<Result>& result) {
    EXPECT_EQ(result.status().code(), kRefused);
  });

  Queue queue;
  EXPECT_EQ(queue.Submit(OpList()).status().code(), kRefused);
  EXPECT_EQ(queue.Drain().code(), kRefused);
  EXPECT_EQ(queue.Close().code(), kRefused);
  EXPECT_EQ(queue.window_batches(), 0);
  EXPECT_EQ(Armed().slot(), -1);
  EXPECT_EQ(Armed().device(), "");
  EXPECT_EQ(Result().output(0), "");
}

TEST(HandleTest, OneThatWasMovedFromDoesToo) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  const Session moved = std::move(session);
  EXPECT_EQ(session.KeepAlive().status().code(), kRefused);  // NOLINT: that is the question
}

TEST(HandleTest, MovedOntoItselfItStaysWhatItIs) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  Buffer buffer = *session.CreateBuffer({.size_bytes = 4});
  Buffer& same_buffer = buffer;
  buffer = std::move(same_buffer);
  EXPECT_EQ(buffer.size_bytes(), 4);
  Session& same_session = session;
  session = std::move(same_session);
  EXPECT_TRUE(session.KeepAlive().ok());
  EXPECT_EQ(daemon.OpenSessions(), 1);
}

TEST(HandleTest, ATraceparentThatNoHeaderTakesIsRefused) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  Buffer buffer = *session.CreateBuffer({.size_bytes = 4});
  const CallOptions call = {.traceparent = "00-ab\n"};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(session.KeepAlive(call).status().code(), kInvalid);
  EXPECT_EQ(session.Execute(OpList(), {.call = call}).status().code(), kInvalid);
  EXPECT_EQ(session.ExecuteAsync(OpList(), {.call = call}).get().status().code(), kInvalid);
  EXPECT_EQ(session.OpenQueue({.traceparent = call.traceparent}).status().code(), kInvalid);
  EXPECT_EQ(buffer.Upload("byte", 0, {.call = call}).status().code(), kInvalid);
}

// What a child answers: how far it got, so that a failure says where.
int InChild(Client client, Session session, Buffer buffer, Plan plan, Queue queue,
            Replicas<int> replicas, const std::string& target) {
  if (replicas.serving() != 1) return 8;
  if (ReasonOf(session.Execute(OpList()).status()) != "FORKED") return 1;
  if (ReasonOf(session.ExecuteAsync(OpList()).get().status()) != "FORKED") return 2;
  if (ReasonOf(buffer.Upload("byte").status()) != "FORKED") return 3;
  if (ReasonOf(plan.Run().status()) != "FORKED") return 4;
  if (ReasonOf(queue.Submit(OpList()).status()) != "FORKED") return 5;
  if (ReasonOf(client.GetServerInfo().status()) != "FORKED") return 6;
  if (ReasonOf(Client::Connect(target).status()) != "FORKED") return 7;
  return 0;
}

TEST(HandleTest, AForkedChildIsRefusedAndItsEndHarmsNothing) {
  FakeDaemon daemon;
  Client client = ConnectTo(daemon);
  Session session = *client.OpenSession();
  Buffer buffer = *session.CreateBuffer({.size_bytes = 4});
  Plan plan = *session.CreatePlan(OpList());
  Queue queue = *session.OpenQueue();
  auto replicas = *Replicas<int>::Open({daemon.target()}, [](Session&) { return 1; });
  const int sessions = daemon.OpenSessions();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that hangs ends by a signal
    _exit(InChild(std::move(client), std::move(session), std::move(buffer), std::move(plan),
                  std::move(queue), std::move(replicas), daemon.target()));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of InChild that failed";
  EXPECT_EQ(daemon.OpenSessions(), sessions);
  EXPECT_TRUE(session.KeepAlive({.timeout = absl::Seconds(20)}).ok());
  EXPECT_TRUE(queue.Close().ok());
}

}  // namespace
}  // namespace gemmd::client
