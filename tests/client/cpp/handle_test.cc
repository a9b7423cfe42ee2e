// Handles that hold nothing, were moved from, or are moved onto themselves.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "client/cpp/armed.h"
#include "client/cpp/client.h"
#include "client/cpp/errors.h"
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

}  // namespace
}  // namespace gemmd::client
