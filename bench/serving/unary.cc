#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/inline_matmul.h"
#include "bench/load/percentiles.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMessageBytes = 250;  // about what an Execute of one matmul takes each way
constexpr double kWantedUs = 25;        // on top of the echo and the device

struct Samples {
  Latencies call;    // seconds of the whole call
  Latencies device;  // seconds on the device, by the daemon's report
};

// With what the Reads bring in memory of the caller's, which it uses again.
absl::Status TimeExecutes(client::Session& session, const client::OpList& ops, client::Route route,
                          int calls, Samples& samples) {
  const client::ExecuteOptions options = {.route = route};
  std::string output;
  for (int i = 0; i < calls; ++i) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = session.Execute(ops, options);
    if (!result.ok()) return result.status();
    if (result->outputs() > 0) {
      output.resize(result->output_bytes(0));
      absl::Status copied = result->CopyOutput(0, absl::MakeSpan(output));
      if (!copied.ok()) return copied;
    }
    samples.call.Add(absl::ToDoubleSeconds(absl::Now() - start));
    samples.device.Add(result->report().device_seconds());
  }
  return absl::OkStatus();
}

absl::Status TimeEchoes(EchoClient& echo, int64_t bytes, int64_t reply_bytes, int calls,
                        Latencies& latencies) {
  for (int i = 0; i < calls; ++i) {
    const absl::Time start = absl::Now();
    absl::Status status = echo.Unary(bytes, reply_bytes);
    if (!status.ok()) return status;
    latencies.Add(absl::ToDoubleSeconds(absl::Now() - start));
  }
  return absl::OkStatus();
}

struct Measured {
  Samples resident, inlined, inlined_by_grpc;
  Latencies echo, inline_echo;
  int64_t bytes_in = 0, bytes_out = 0;
};

absl::StatusOr<Measured> Measure(const Serving& serving) {
  absl::StatusOr<ResidentMatmul> resident =
      MakeResident(serving.session, Fp8Spec(serving.sizes.unary));
  if (!resident.ok()) return resident.status();
  absl::StatusOr<InlineMatmul> inlined = MakeInline(*resident);
  if (!inlined.ok()) return inlined.status();
  Measured measured;
  measured.bytes_in = inlined->bytes_in;
  measured.bytes_out = inlined->bytes_out;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    Measured warm_up;
    Measured& into = round == 0 ? warm_up : measured;
    const int calls = serving.sizes.calls;
    const int few = std::max(calls / 4, 1);  // half a megabyte each way takes its time
    absl::Status status = TimeEchoes(serving.echo, kMessageBytes, kMessageBytes, calls, into.echo);
    const auto execute = [&](const client::OpList& ops, client::Route route, int times,
                             Samples& samples) {
      if (status.ok()) status = TimeExecutes(serving.session, ops, route, times, samples);
    };
    execute(resident->ops, client::Route::kAuto, calls, into.resident);
    if (status.ok()) {
      status =
          TimeEchoes(serving.echo, measured.bytes_in, measured.bytes_out, few, into.inline_echo);
    }
    execute(inlined->ops, client::Route::kAuto, few, into.inlined);
    execute(inlined->ops, client::Route::kGrpc, few, into.inlined_by_grpc);
    if (!status.ok()) return status;
  }
  return measured;
}

cli::Json Percentiles(const Latencies& latencies) {
  return {{"p50_us", latencies.Percentile(50) * 1e6},
          {"p99_us", latencies.Percentile(99) * 1e6},
          {"count", latencies.count()}};
}

}  // namespace

std::vector<Figure> MeasureUnary(const Serving& serving) {
  const MatmulSize& size = serving.sizes.unary;
  const std::string name = absl::StrCat(size.m, "x", size.n, "x", size.k);
  Figure resident = {.key = "execute_over_echo_and_device",
                     .what = absl::StrCat("Execute of a resident ", name,
                                          " p50, less the echo's and the device time"),
                     .unit = "us",
                     .wanted = kWantedUs,
                     .at_most = true};
  Figure inlined = {.key = "execute_inline_over_echo_and_device",
                    .what =
                        "the same with activations and result inline, less 1.2x what the echo "
                        "takes for those bytes",
                    .unit = "us",
                    .wanted = kWantedUs,
                    .at_most = true};
  Figure by_grpc = inlined;
  by_grpc.key = "execute_inline_by_grpc_over_echo_and_device";
  by_grpc.what = "the same with those bytes in gRPC's messages";
  absl::StatusOr<Measured> measured = Measure(serving);
  if (!measured.ok()) {
    return {Missing(resident, measured.status()), Missing(inlined, measured.status()),
            Missing(by_grpc, measured.status())};
  }
  const double echo = measured->echo.Percentile(50);
  const double device = measured->resident.device.Percentile(50);
  const double bytes_cost = measured->inline_echo.Percentile(50) - echo;
  resident.seen = (measured->resident.call.Percentile(50) - echo - device) * 1e6;
  resident.detail = {{"execute", Percentiles(measured->resident.call)},
                     {"echo", Percentiles(measured->echo)},
                     {"device", Percentiles(measured->resident.device)}};
  const auto fill_in = [&](const Samples& samples, Figure& figure) {
    figure.seen = (samples.call.Percentile(50) - echo - device - 1.2 * bytes_cost) * 1e6;
    figure.detail = {{"execute", Percentiles(samples.call)},
                     {"echo_of_the_bytes", Percentiles(measured->inline_echo)},
                     {"device_with_copies", Percentiles(samples.device)},
                     {"bytes_in", measured->bytes_in},
                     {"bytes_out", measured->bytes_out}};
  };
  fill_in(measured->inlined, inlined);
  fill_in(measured->inlined_by_grpc, by_grpc);
  return {resident, inlined, by_grpc};
}

}  // namespace gemmd::bench
