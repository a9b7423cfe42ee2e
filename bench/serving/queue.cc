#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/floor/ratio.h"
#include "bench/load/percentiles.h"
#include "bench/load/resident.h"
#include "bench/serving/device_busy.h"
#include "bench/serving/pump.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kQueueMessageBytes = 250;  // about what a batch of one matmul takes each way

// The median device time of `ops` with nothing beside it.
absl::StatusOr<double> DeviceSecondsAlone(const Serving& serving, const client::OpList& ops) {
  Latencies device;
  for (int i = 0; i < std::max(serving.sizes.calls / 20, 5); ++i) {
    absl::StatusOr<client::Result> result = serving.session.Execute(ops);
    if (!result.ok()) return result.status();
    device.Add(result->report().device_seconds());
  }
  return device.Percentile(50);
}

absl::Status MeasureBusy(const Serving& serving, const client::OpList& ops, Figure& figure) {
  absl::StatusOr<double> alone = DeviceSecondsAlone(serving, ops);
  if (!alone.ok()) return alone.status();
  absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(serving.session, ops);
  if (!pump.ok()) return pump.status();
  absl::SleepFor(serving.sizes.warm_up);
  const Pump::Count before = (*pump)->count();
  absl::StatusOr<BusyMeter> meter = BusyMeter::Start(serving.client, {serving.device});
  if (!meter.ok()) return meter.status();
  absl::SleepFor(serving.sizes.duration);
  const Pump::Count after = (*pump)->count();
  absl::StatusOr<BusyShare> share = meter->Stop();
  if (!share.ok()) return share.status();
  if (absl::Status status = (*pump)->status(); !status.ok()) return status;
  const auto batches = static_cast<double>(after.batches - before.batches);
  figure.seen = share->busy;
  figure.detail = {
      {"messages_per_second", batches / share->seconds},
      {"device_us_of_a_message_alone", *alone * 1e6},
      {"device_us_of_a_message",
       batches > 0 ? (after.device_seconds - before.device_seconds) / batches * 1e6 : 0},
      {"device_time_alone_over_wall", batches * *alone / share->seconds},
      {"device_time_of_replies_over_wall",
       (after.device_seconds - before.device_seconds) / share->seconds}};
  return absl::OkStatus();
}

Figure RateOverEcho(const Serving& serving, const client::OpList& ops, int depth, bool gather,
                    Figure figure) {
  const absl::Duration turn = serving.sizes.duration / 4;
  const Ratio ratio = MeasureRatio(
      {.key = figure.key, .target = figure.wanted}, serving.sizes.rounds,
      [&] { return PumpedRate(serving.session, ops, gather, turn / 4, turn); },
      [&] { return serving.echo.StreamRate(kQueueMessageBytes, depth, turn); });
  if (!ratio.measured()) return Missing(figure, absl::InternalError(ratio.missing));
  figure.seen = ratio.value();
  figure.detail = {{"batches_per_second", Median(ratio.ours)},
                   {"echo_messages_per_second", Median(ratio.theirs)},
                   {"spread", Spread(ratio.ours)},
                   {"depth", depth}};
  return figure;
}

}  // namespace

std::vector<Figure> MeasureQueue(const Serving& serving) {
  const MatmulSize& size = serving.sizes.queued;
  Figure busy = {
      .key = "queue_device_busy",
      .what = absl::StrCat("device busy over wall, one client, Queue, ", serving.sizes.queued_ops,
                           " matmuls ", size.m, "x", size.n, "x", size.k, " a message"),
      .wanted = 0.95};
  Figure rate = {.key = "queue_rate_over_echo_stream",
                 .what = "messages of one matmul a second, over the echo stream's of that depth",
                 .wanted = 0.8};
  Figure gathered = {.key = "queue_gathered_over_echo_stream",
                     .what =
                         "the same where the client gathers what waits for its last write: "
                         "batches, over the echo's messages",
                     .wanted = 0.8};
  absl::StatusOr<ResidentMatmul> resident = MakeResident(serving.session, Fp8Spec(size));
  absl::StatusOr<client::Queue> queue = serving.session.OpenQueue();
  for (const absl::Status& status : {resident.status(), queue.status()}) {
    if (!status.ok()) {
      return {Missing(busy, status), Missing(rate, status), Missing(gathered, status)};
    }
  }
  const int depth = queue->window_batches();
  const client::OpList many = resident->Repeated(serving.sizes.queued_ops);
  if (absl::Status status = MeasureBusy(serving, many, busy); !status.ok()) {
    busy = Missing(busy, status);
  }
  return {busy, RateOverEcho(serving, resident->ops, depth, /*gather=*/false, rate),
          RateOverEcho(serving, resident->ops, depth, /*gather=*/true, gathered)};
}

}  // namespace gemmd::bench
