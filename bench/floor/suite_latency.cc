#include <atomic>

#include "absl/time/clock.h"
#include "bench/floor/suite.h"
#include "bench/load/percentiles.h"
#include "bench/load/resident.h"

namespace gemmd::bench {
namespace {

constexpr int kLatencyRounds = 7;
constexpr int kCalls = 1000;            // of a round; 0.1 s at 100 us
constexpr int64_t kMessageBytes = 250;  // about what an Execute of one matmul takes each way
constexpr absl::Duration kStreamTime = absl::Milliseconds(400);  // of a round

absl::StatusOr<double> QueueRate(client::Queue& queue, const client::OpList& ops) {
  std::atomic<int64_t> completed = 0;
  std::atomic<int64_t> failed = 0;
  const absl::Time start = absl::Now();
  while (absl::Now() - start < kStreamTime) {
    // Submit blocks while the window is full: the depth is the server's.
    absl::Status sent = queue.Submit(ops, [&](absl::StatusOr<client::Result> result) {
      ++completed;
      if (!result.ok()) ++failed;
    });
    if (!sent.ok()) return sent;
  }
  absl::Status drained = queue.Drain();
  if (!drained.ok()) return drained;
  if (failed > 0) return absl::InternalError("a batch of the queue failed");
  return static_cast<double>(completed) / absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace

absl::StatusOr<double> ExecuteTinySeconds(client::Session& session, const client::OpList& ops) {
  Latencies latencies;
  for (int i = 0; i < kCalls; ++i) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = session.Execute(ops);
    if (!result.ok()) return result.status();
    latencies.Add(absl::ToDoubleSeconds(absl::Now() - start));
  }
  return latencies.Percentile(50);
}

absl::StatusOr<std::vector<Ratio>> MeasureLatencies(const Floor& floor) {
  absl::StatusOr<ResidentMatmul> tiny = MakeResident(floor.session, ResidentSpec());
  if (!tiny.ok()) return tiny.status();
  const auto execute = [&]() -> absl::StatusOr<double> {
    absl::StatusOr<double> seconds = ExecuteTinySeconds(floor.session, tiny->ops);
    if (!seconds.ok()) return seconds;
    return *seconds * 1e6;
  };
  const auto echo = [&]() -> absl::StatusOr<double> {
    Latencies latencies;
    for (int i = 0; i < kCalls; ++i) {
      const absl::Time start = absl::Now();
      absl::Status status = floor.echo.Unary(kMessageBytes);
      if (!status.ok()) return status;
      latencies.Add(absl::ToDoubleSeconds(absl::Now() - start));
    }
    return latencies.Percentile(50) * 1e6;
  };
  std::vector<Ratio> ratios;
  ratios.push_back(MeasureRatio({.key = "execute_tiny_over_echo_p50",
                                 .ours = "Execute of a resident 16x16x16 p50",
                                 .theirs = "bare unary echo p50",
                                 .unit = "us",
                                 .target = 1.4,
                                 .at_most = true},
                                kLatencyRounds, execute, echo));
  absl::StatusOr<client::Queue> queue = floor.session.OpenQueue({.gather = false});
  if (!queue.ok()) return queue.status();
  const int depth = queue->window_batches();
  ratios.push_back(MeasureRatio(
      {.key = "queue_rate_over_echo_stream",
       .ours = "Queue of single matmuls",
       .theirs = "bare bidi echo stream of the same depth",
       .unit = "messages/s",
       .target = 0.7},
      kLatencyRounds, [&] { return QueueRate(*queue, tiny->ops); },
      [&] { return floor.echo.StreamRate(kMessageBytes, depth, kStreamTime); }));
  absl::Status closed = queue->Close();
  if (!closed.ok()) return closed;
  return ratios;
}

}  // namespace gemmd::bench
