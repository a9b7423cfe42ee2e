// The timeline of a running daemon: that it has what happened, and harms nobody.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/trace_reader.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using client::Copy;
using client::Fill;
using client::OpList;
using client::Ticket;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = v1::TraceEvent;

std::string ReasonIn(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find("gemmd-reason");
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

int64_t End(const v1::TraceEvent& event) { return event.begin_ns() + event.duration_ns(); }

class TraceTest : public E2eTest {
 protected:
  // Two ops of a few microseconds.
  OpList Work() { return OpList().Add(Fill{x_.tensor(), 1}).Add(Copy{x_.tensor(), y_.tensor()}); }

  Wire wire_{daemon_.target()};
  client::Buffer x_ = MakeBuffer(session_, {64, 64});
  client::Buffer y_ = MakeBuffer(session_, {64, 64});
};

TEST_F(TraceTest, EveryProgramIsThereAndTheSumsAreThoseOfTheReports) {
  TraceReader trace(wire_.channel(), absl::Seconds(60));
  ASSERT_TRUE(trace.WaitBegun());
  double queue_seconds = 0, device_seconds = 0, op_seconds = 0;
  const auto add = [&](const client::Result& result) {
    const v1::ProgramReport& report = result.report();
    queue_seconds += report.queue_seconds();
    device_seconds += report.device_seconds();
    for (const v1::OpReport& op : report.ops()) op_seconds += op.device_seconds();
  };
  for (int i = 0; i < 20; ++i) add(Must(session_.Execute(Work())));
  client::Queue queue = Must(session_.OpenQueue());
  std::vector<Ticket> tickets;
  for (int i = 0; i < 30; ++i) tickets.push_back(Must(queue.Submit(Work())));
  for (Ticket& ticket : tickets) add(Must(ticket.Wait()));
  ASSERT_TRUE(trace.WaitFor(Kind::KIND_OP, 100));
  ASSERT_TRUE(trace.WaitFor(Kind::KIND_LAUNCH, 50));

  struct Seen {
    std::vector<v1::TraceEvent> queue, launch, device, ops;
  };
  std::map<uint64_t, Seen> programs;
  for (const v1::TraceEvent& event : trace.Events()) {
    if (event.kind() == Kind::KIND_CALL || event.kind() == Kind::KIND_TRANSFER) continue;
    EXPECT_EQ(event.device(), TestDevice());
    EXPECT_EQ(event.tenant(), "default");
    Seen& seen = programs[event.program()];
    (event.kind() == Kind::KIND_QUEUE    ? seen.queue
     : event.kind() == Kind::KIND_LAUNCH ? seen.launch
     : event.kind() == Kind::KIND_DEVICE ? seen.device
                                         : seen.ops)
        .push_back(event);
  }
  ASSERT_EQ(programs.size(), 50u);
  EXPECT_FALSE(programs.contains(0));
  double queued = 0, ran = 0, ops_ran = 0;
  for (const auto& [number, seen] : programs) {
    ASSERT_EQ(seen.queue.size(), 1u);
    ASSERT_EQ(seen.launch.size(), 1u);
    ASSERT_EQ(seen.device.size(), 1u);
    ASSERT_EQ(seen.ops.size(), 2u);
    const v1::TraceEvent& device = seen.device[0];
    EXPECT_GE(seen.queue[0].begin_ns(), 0);
    EXPECT_GE(seen.launch[0].begin_ns(), seen.queue[0].begin_ns());
    EXPECT_NEAR(static_cast<double>(End(seen.queue[0]) - device.begin_ns()), 0, 2);
    EXPECT_EQ(seen.ops[0].begin_ns(), device.begin_ns());
    EXPECT_NEAR(static_cast<double>(End(seen.ops[0]) - seen.ops[1].begin_ns()), 0, 2);
    EXPECT_LE(End(seen.ops[1]), End(device) + 2);
    EXPECT_FALSE(seen.ops[0].name().empty());
    queued += static_cast<double>(seen.queue[0].duration_ns()) * 1e-9;
    ran += static_cast<double>(device.duration_ns()) * 1e-9;
    for (const v1::TraceEvent& op : seen.ops) {
      ops_ran += static_cast<double>(op.duration_ns()) * 1e-9;
    }
  }
  // Nanoseconds are cut off.
  EXPECT_NEAR(queued, queue_seconds, 50 * 2e-9);
  EXPECT_NEAR(ran, device_seconds, 50 * 2e-9);
  EXPECT_NEAR(ops_ran, op_seconds, 100 * 2e-9 + 1e-6 * op_seconds);
  EXPECT_EQ(trace.dropped(), 0);
  EXPECT_TRUE(queue.Close().ok());
}

TEST_F(TraceTest, CallsAndTransfersAreThereWithWhoseTheyAre) {
  TraceReader trace(wire_.channel(), absl::Seconds(60));
  ASSERT_TRUE(trace.WaitBegun());
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  Must(session_.Execute(Work(), {.call = {.traceparent = "00-" + id + "-00f067aa0ba902b7-01"}}));
  client::TransferOptions by_grpc;
  by_grpc.route = client::TransferOptions::Route::kGrpc;
  Must(x_.Upload(std::string(64 * 64 * 4, 'x'), 0, by_grpc));
  std::string back(64 * 64 * 4, '\0');
  Must(x_.Download(absl::MakeSpan(back), 0, by_grpc));
  ASSERT_TRUE(trace.WaitFor(Kind::KIND_TRANSFER, 2));
  ASSERT_TRUE(trace.WaitFor(Kind::KIND_CALL, 3));
  std::map<std::string, v1::TraceEvent> calls, transfers;
  for (const v1::TraceEvent& event : trace.Events(Kind::KIND_CALL)) calls[event.name()] = event;
  for (const v1::TraceEvent& event : trace.Events(Kind::KIND_TRANSFER)) {
    transfers[event.name()] = event;
  }
  for (const char* name : {"Execute", "Upload", "Download"}) {
    EXPECT_EQ(calls[name].tenant(), "default") << name;
    EXPECT_EQ(calls[name].trace_id(), std::string(name) == "Execute" ? id : "") << name;
  }
  for (const char* name : {"Upload", "Download"}) {
    const v1::TraceEvent& transfer = transfers[name];
    EXPECT_EQ(transfer.bytes(), 64 * 64 * 4) << name;
    EXPECT_EQ(transfer.device(), TestDevice()) << name;
    EXPECT_EQ(transfer.tenant(), "default") << name;
    EXPECT_GE(transfer.begin_ns(), calls[name].begin_ns()) << name;
    EXPECT_LE(End(transfer), End(calls[name])) << name;
  }
}

TEST_F(TraceTest, TracesThatOverlapAllCompleteAndOneTooManyIsRefused) {
  std::vector<std::unique_ptr<TraceReader>> traces;
  for (int i = 0; i < 4; ++i) {
    traces.push_back(
        std::make_unique<TraceReader>(wire_.channel(), absl::Milliseconds(5000 + 100 * i)));
    ASSERT_TRUE(traces.back()->WaitBegun());
  }
  grpc::ClientContext context;
  const auto stub = v1::AdminService::NewStub(wire_.channel());
  auto fifth = stub->Trace(&context, v1::TraceRequest());
  const grpc::Status refused = fifth->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(context), "TRACE_LIMIT");
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("limit 4"), HasSubstr("wait")));

  for (int i = 0; i < 10; ++i) Must(session_.Execute(Work()));
  for (auto& trace : traces) EXPECT_TRUE(trace->WaitFor(Kind::KIND_DEVICE, 10));
  for (auto& trace : traces) {
    EXPECT_TRUE(trace->Finish().ok());
    EXPECT_EQ(trace->Events(Kind::KIND_DEVICE).size(), 10u);
  }
  TraceReader next(wire_.channel(), absl::Milliseconds(50));
  EXPECT_TRUE(next.Finish().ok());
}

TEST_F(TraceTest, AReaderThatGoesAwayLeavesNothing) {
  for (int i = 0; i < 8; ++i) {  // more than there may be at once
    TraceReader trace(wire_.channel(), absl::Minutes(10), /*reads=*/i % 2 == 0);
    ASSERT_TRUE(
        WaitUntil([&] { return daemon_.Metric("gemmd_streams", "method=\"Trace\"") == 1; }));
    Must(session_.Execute(Work()));
    trace.Cancel();
    ASSERT_TRUE(
        WaitUntil([&] { return daemon_.Metric("gemmd_streams", "method=\"Trace\"") == 0; }));
  }
}

TEST_F(TraceTest, ADrainEndsTracesWhetherTheyAreReadOrNot) {
  TraceReader trace(wire_.channel(), absl::Minutes(10));
  // This end takes in little for a reader that has not asked: a write stays under way over there.
  grpc::ChannelArguments small_window;
  small_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  TraceReader stuck(
      grpc::CreateCustomChannel(daemon_.target(), grpc::InsecureChannelCredentials(), small_window),
      absl::Minutes(10), /*reads=*/false);
  ASSERT_TRUE(trace.WaitBegun());
  ASSERT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_streams", "method=\"Trace\"") == 2; }));
  OpList many;
  for (int i = 0; i < 250; ++i) many.Add(Fill{x_.tensor(), 1});
  for (int i = 0; i < 100; ++i) Must(session_.Execute(many));
  EXPECT_EQ(daemon_.Stop(), 0) << daemon_.log();
  EXPECT_THAT(daemon_.log(), HasSubstr("answered_all=true"));
  const grpc::Status ended = trace.Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  EXPECT_THAT(ended.error_message(), HasSubstr("draining"));
  EXPECT_GT(trace.Events(Kind::KIND_DEVICE).size(), 0u);
}

TEST_F(TraceTest, ItIsNotForPlainUsersAndNotForAnyDuration) {
  // The TCP listener names no credentials: its callers are users.
  Wire user(daemon_.tcp_target());
  TraceReader refused(user.channel(), absl::Seconds(1));
  EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Seconds(-1), absl::Minutes(10) + absl::Nanoseconds(1)}) {
    TraceReader trace(wire_.channel(), duration);
    const grpc::Status status = trace.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << duration;
    EXPECT_THAT(status.error_message(), HasSubstr("10m")) << duration;
  }
}

}  // namespace
}  // namespace gemmd::e2e
