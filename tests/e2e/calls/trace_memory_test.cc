// A trace that nobody reads costs its daemon a fixed amount of memory.

#include <grpcpp/grpcpp.h>

#include "tests/e2e/fixture.h"
#include "tests/e2e/trace_reader.h"

namespace gemmd::e2e {
namespace {

class TraceMemoryTest : public E2eTest {};

TEST_F(TraceMemoryTest, AReaderThatDoesNotReadLosesEventsAndStopsNobody) {
  client::Buffer x = MakeBuffer(session_, {64, 64});
  client::OpList many;
  for (int i = 0; i < 250; ++i) many.Add(client::Fill{x.tensor(), 1});
  // 100,000 events; by a queue, of which the daemon remembers nothing.
  client::Queue queue = Must(session_.OpenQueue());
  const auto load = [&] {
    for (int i = 0; i < 400; ++i) Must(Must(queue.Submit(many)).Wait());
    return UseOf(daemon_.process().pid()).resident_bytes;
  };
  const int64_t before = load();
  // Of what this end takes in for a reader that has not asked, little.
  grpc::ChannelArguments small_window;
  small_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  TraceReader trace(
      grpc::CreateCustomChannel(daemon_.target(), grpc::InsecureChannelCredentials(), small_window),
      absl::Minutes(5), /*reads=*/false);
  ASSERT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_streams", "method=\"Trace\"") == 1; }));
  EXPECT_LT(load() - before, 32 << 20);
  EXPECT_LT(load() - before, 32 << 20);
  trace.Read();
  EXPECT_TRUE(WaitUntil([&] { return trace.dropped() > 0; }));
  EXPECT_GT(trace.Events().size(), 1000u);
  EXPECT_TRUE(queue.Close().ok());
}

}  // namespace
}  // namespace gemmd::e2e
