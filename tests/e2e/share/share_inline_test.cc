// Inline data of programs through memory that client and daemon share.

#include <signal.h>
#include <sys/wait.h>

#include <optional>
#include <thread>

#include "tests/e2e/inline_data.h"
#include "tests/e2e/two_devices.h"

namespace gemmd::e2e {
namespace {

using client::DType;
using client::ExecuteOptions;
using client::OpList;
using client::Read;
using client::Route;
using client::Write;

class ShareInlineTest : public E2eTest {
 protected:
  // By a daemon that does not answer in time.
  absl::Status Unanswered(const OpList& ops, bool async) {
    const ExecuteOptions options = {.call = {.timeout = absl::Milliseconds(50)}};
    const pid_t daemon = daemon_.process().pid();
    kill(daemon, SIGSTOP);
    siginfo_t stopped;
    waitid(P_PID, static_cast<id_t>(daemon), &stopped, WSTOPPED);
    const absl::Status status = async ? session_.ExecuteAsync(ops, options).get().status()
                                      : session_.Execute(ops, options).status();
    kill(daemon, SIGCONT);
    return status;
  }

  client::Buffer buffer_ = Must(session_.CreateBuffer({.size_bytes = kShared}));
};

TEST_F(ShareInlineTest, MuchGoesThroughSharedMemoryAndLittleDoesNot) {
  const std::string bytes = Pattern(kBytes);
  const client::Result much = Must(session_.Execute(Echo(buffer_, bytes)));
  EXPECT_EQ(Ran(much), kByShm);
  EXPECT_EQ(OpsOf(much), kByGrpc);  // the caller's own
  ASSERT_EQ(much.outputs(), 1);
  EXPECT_EQ(much.output(0), bytes);
  std::string copied(bytes.size(), '\0');
  ASSERT_TRUE(much.CopyOutput(0, absl::MakeSpan(copied)).ok());
  EXPECT_EQ(copied, bytes);

  const client::Result by_grpc =
      Must(session_.Execute(Echo(buffer_, bytes), {.route = Route::kGrpc}));
  EXPECT_EQ(Ran(by_grpc), kByGrpc);
  EXPECT_EQ(by_grpc.output(0), bytes);

  EXPECT_EQ(Ran(Must(session_.Execute(Echo(buffer_, "little")))), kByGrpc);
  const client::Result little =
      Must(session_.Execute(Echo(buffer_, "little"), {.route = Route::kShm}));
  EXPECT_EQ(Ran(little), kByShm);
  EXPECT_EQ(little.output(0), "little");
  EXPECT_EQ(Staging(session_), 1);
}

TEST_F(ShareInlineTest, OpsKeepTheirPlacesAndOutputsTheirOrder) {
  client::Buffer x = MakeBuffer(session_, {4, 8}), y = MakeBuffer(session_, {4, 8});
  const std::string bytes = Floats(std::vector<float>(32, 1.5f));
  OpList ops;
  ops.Add(client::Fill{y.tensor(), 2})
      .Add(Write{x.tensor().Slice(1, 0, 4), bytes.substr(0, 64)})
      .Add(Read{y.tensor().Transposed()})
      .Add(client::Copy{x.tensor(), y.tensor()})
      .Add(Read{y.tensor().Slice(0, 1, 1)});
  const client::Result result = Must(session_.Execute(ops, {.route = Route::kShm}));
  EXPECT_EQ(Ran(result), (std::vector<std::string>{"fill", "copy", "copy", "copy", "copy"}));
  EXPECT_EQ(OpsOf(result), (std::vector<std::string>{"fill", "write", "read", "copy", "read"}));
  EXPECT_EQ(FloatsOf(result, 0), std::vector<float>(32, 2));
  EXPECT_EQ(FloatsOf(result, 1), (std::vector<float>{1.5, 1.5, 1.5, 1.5, 0, 0, 0, 0}));
}

TEST_F(ShareInlineTest, ResultsKeepTheirOutputs) {
  std::vector<client::Result> results;
  for (int i = 0; i < 5; ++i) {
    results.push_back(Must(session_.Execute(Echo(buffer_, Pattern(kBytes, i)))));
  }
  results.erase(results.begin() + 2);
  results.push_back(Must(session_.Execute(Echo(buffer_, Pattern(kBytes, 5)))));
  Must(session_.Close());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(Ran(results[i]), kByShm);
    EXPECT_EQ(results[i].output(0), Pattern(kBytes, static_cast<int>(i < 2 ? i : i + 1))) << i;
  }
}

TEST_F(ShareInlineTest, TheMemoryGrowsWithWhatIsKept) {
  std::vector<client::Result> results;
  for (int i = 0; i < 20; ++i) {
    results.push_back(Must(session_.Execute(Echo(buffer_, Pattern(kBytes, i)))));
    EXPECT_EQ(Ran(results.back()), kByShm) << i;
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(results[i].output(0), Pattern(kBytes, i)) << i;
  EXPECT_EQ(Staging(session_), 1);
}

TEST_F(ShareInlineTest, WithoutRoomItGoesByGrpc) {
  const int64_t half = kShared / 4;  // there and back
  std::optional<client::Result> first = Must(session_.Execute(Echo(buffer_, Pattern(half, 1))));
  std::optional<client::Result> second = Must(session_.Execute(Echo(buffer_, Pattern(half, 2))));
  EXPECT_EQ(Ran(*second), kByShm);
  const OpList third = Echo(buffer_, Pattern(kBytes, 3));
  EXPECT_EQ(Ran(Must(session_.Execute(third))), kByGrpc);
  const absl::Status full = session_.Execute(third, {.route = Route::kShm}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("let go of results"));
  first.reset();
  EXPECT_EQ(Ran(Must(session_.Execute(third))), kByShm);
  EXPECT_EQ(second->output(0), Pattern(half, 2));
}

TEST_F(ShareInlineTest, ARefusalSpeaksOfTheCallersOps) {
  const client::Tensor elsewhere(buffer_.id(), DType::kI8, {kBytes}, kShared - 1);
  const OpList wrong = OpList().Add(Write{elsewhere, Pattern(kBytes)});
  const absl::Status refused = session_.Execute(wrong).status();
  EXPECT_EQ(refused.message(), session_.Execute(wrong, {.route = Route::kGrpc}).status().message());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("op 0 (write)"));
  // Data of another size than its tensor is the server's to refuse.
  const OpList short_of =
      OpList().Add(Write{Bytes(buffer_), Pattern(kBytes - 1)}).Add(Read{Bytes(buffer_)});
  EXPECT_EQ(session_.Execute(short_of, {.route = Route::kShm}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session_.Execute(short_of).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Ran(Must(session_.Execute(Echo(buffer_, Pattern(kBytes))))), kByShm);
}

TEST_F(ShareInlineTest, AnOpIdOfTheCallersBringsTheOutputsAgain) {
  const OpList ops = Echo(buffer_, Pattern(kBytes));
  const ExecuteOptions options = {.op_id = "again"};
  EXPECT_EQ(Ran(Must(session_.Execute(ops, options))), kByGrpc);
  const client::Result again = Must(session_.Execute(ops, options));
  EXPECT_TRUE(again.replayed());
  EXPECT_EQ(again.output(0), Pattern(kBytes));
}

TEST_F(ShareInlineTest, ADeletedBufferIsMadeAnew) {
  const OpList ops = Echo(buffer_, Pattern(kBytes));
  Must(session_.Execute(ops));
  for (const v1::Buffer& one : Must(session_.ListBuffers())) {
    if (one.label() != "client inline data") continue;
    Must(session_.DeleteBuffers({Must(client::Handle::FromBytes(one.buffer_id()))}));
  }
  const client::Result meanwhile = Must(session_.Execute(ops));
  EXPECT_EQ(Ran(meanwhile), kByGrpc);
  EXPECT_EQ(meanwhile.output(0), Pattern(kBytes));
  EXPECT_EQ(Ran(Must(session_.Execute(ops))), kByShm);
}

TEST_F(ShareInlineTest, TheFirstCallWaitsNoLongerThanItsCallerWants) {
  const OpList ops = Echo(buffer_, Pattern(kBytes));
  const absl::Time start = absl::Now();
  EXPECT_EQ(Unanswered(ops, /*async=*/false).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - start, absl::Seconds(4.9));  // 50 ms, where a call of its own has 5 s
  EXPECT_EQ(Ran(Must(session_.Execute(ops))), kByShm);
}

TEST_F(ShareInlineTest, WhatWasNotAnsweredKeepsItsBytesForItself) {
  const OpList ops = Echo(buffer_, Pattern(kBytes));
  for (const bool async : {false, true}) {
    Must(session_.Execute(ops));
    EXPECT_EQ(Staging(session_), 1);
    EXPECT_EQ(Unanswered(ops, async).code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Staging(session_), 0);
    const client::Result next = Must(session_.Execute(ops));
    EXPECT_EQ(Ran(next), kByShm);
    EXPECT_EQ(next.output(0), Pattern(kBytes));
  }
}

TEST_F(ShareInlineTest, ManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      client::Buffer own = Must(session_.CreateBuffer({.size_bytes = kBytes}));
      for (int i = 0; i < 40; ++i) {
        const std::string bytes = Pattern(kBytes, 100 * t + i);
        // Both kinds of call take their places from one memory.
        const client::Result result = i % 2 == 0
                                          ? Must(session_.Execute(Echo(own, bytes)))
                                          : Must(session_.ExecuteAsync(Echo(own, bytes)).get());
        EXPECT_EQ(Ran(result), kByShm);
        EXPECT_EQ(result.output(0), bytes) << t << " " << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ShareInlineTest, AsynchronousCallsFallBackToo) {
  const client::Tensor elsewhere(buffer_.id(), DType::kI8, {kBytes}, kShared - 1);
  const OpList wrong = OpList().Add(Write{elsewhere, Pattern(kBytes)});
  EXPECT_THAT(std::string(session_.ExecuteAsync(wrong).get().status().message()),
              testing::HasSubstr("op 0 (write)"));
}

class ShareInlineQuotaTest : public E2eTest {
 protected:
  ShareInlineQuotaTest()
      : E2eTest({.config = "tenants { name: \"default\" limits { max_buffer_bytes: " +
                           std::to_string(kShared + (2 << 20)) + " } }"}) {}
};

TEST_F(ShareInlineQuotaTest, GivesWayToTheCallersBuffers) {
  client::Buffer first = Must(session_.CreateBuffer({.size_bytes = 1 << 20}));
  const OpList ops = Echo(first, Pattern(kBytes));
  EXPECT_EQ(Ran(Must(session_.Execute(ops))), kByShm);
  client::Buffer second = Must(session_.CreateBuffer({.size_bytes = kShared}));
  EXPECT_EQ(Staging(session_), 0);
  const client::Result result = Must(session_.Execute(ops));
  EXPECT_EQ(Ran(result), kByGrpc);
  EXPECT_EQ(result.output(0), Pattern(kBytes));
}

TEST_F(TwoDevicesTest, APartOfTheWayIsNoWayToTheOtherDevice) {
  client::Buffer near = On(kNear, {kBytes}, DType::kI8);
  client::Buffer far = On(kFar, {kBytes}, DType::kI8);
  EXPECT_EQ(Ran(Must(session_.Execute(Echo(near, Pattern(kBytes))))), kByShm);
  const client::Result result = Must(session_.Execute(Echo(far, Pattern(kBytes, 1))));
  EXPECT_EQ(Ran(result), kByGrpc);
  EXPECT_EQ(result.output(0), Pattern(kBytes, 1));
}

TEST(ShareInlineOffTest, GoesByGrpc) {
  Daemon daemon({.config = "share { disabled: true }"});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession());
  client::Buffer buffer = Must(session.CreateBuffer({.size_bytes = kBytes}));
  const OpList ops = Echo(buffer, Pattern(kBytes));
  EXPECT_EQ(Ran(Must(session.Execute(ops))), kByGrpc);
  EXPECT_EQ(session.Execute(ops, {.route = Route::kShm}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session.ExecuteAsync(ops, {.route = Route::kShm}).get().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd::e2e
