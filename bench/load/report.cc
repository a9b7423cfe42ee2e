#include "bench/load/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::bench {
namespace {

struct Point {
  const char* key;
  const char* name;
  double percent;
};
constexpr Point kPoints[] = {{"p50", "p50", 50},
                             {"p90", "p90", 90},
                             {"p99", "p99", 99},
                             {"p999", "p99.9", 99.9},
                             {"max", "max", 100}};

cli::Json LatencyJson(const Latencies& latencies) {
  cli::Json document = {{"count", latencies.count()}, {"mean", latencies.mean() * 1e6}};
  for (const Point& point : kPoints)
    document[point.key] = latencies.Percentile(point.percent) * 1e6;
  return document;
}

double Rate(const LoadReport& report) {
  return report.seconds > 0 ? static_cast<double>(report.latencies.count()) / report.seconds : 0;
}

double Tax(const BenchReport& bench) {
  const double echo = bench.echo.latencies.Percentile(50);
  return echo > 0 ? bench.report.latencies.Percentile(50) / echo : 0;
}

}  // namespace

cli::Json BenchJson(const BenchReport& bench) {
  const bool open = bench.load.rate > 0;
  const ResidentSpec& matmul = bench.spec.matmul;
  cli::Json document = {
      {"server", bench.target},
      {"mode", bench.mode},
      {"loop", open ? "open" : "closed"},
      {"concurrency", bench.load.concurrency},
      {"rate", open ? cli::Json(bench.load.rate) : cli::Json()},
      {"poisson", bench.load.poisson},
      {"requests", bench.report.latencies.count()},
      {"errors", bench.report.errors},
      {"due", open ? cli::Json(bench.report.due) : cli::Json()},
      {"unsent", bench.report.unsent},
      {"unanswered", bench.report.unanswered},
      {"seconds", bench.report.seconds},
      {"requests_per_second", Rate(bench.report)},
      {"latency_us", LatencyJson(bench.report.latencies)},
      {"max_late_us", open ? cli::Json(bench.report.max_late_seconds * 1e6) : cli::Json()},
      {"echo_latency_us", LatencyJson(bench.echo.latencies)},
      {"p50_over_echo", bench.workload.bytes() > 0 ? cli::Json() : cli::Json(Tax(bench))}};
  if (bench.workload.bytes() > 0) {
    document["bytes"] = bench.workload.bytes();
    document["gb_per_second"] =
        Rate(bench.report) * static_cast<double>(bench.workload.bytes()) / 1e9;
    return document;
  }
  document["matmul"] = {{"m", matmul.m},
                        {"n", matmul.n},
                        {"k", matmul.k},
                        {"dtype", std::string(client::Name(matmul.dtype))},
                        {"out_dtype", std::string(client::Name(matmul.out_dtype))},
                        {"quantize", std::string(matmul.quantize.name)}};
  document["tflops"] = Rate(bench.report) * bench.workload.flops() / 1e12;
  document["mean_device_us"] = bench.workload.mean_device_seconds() * 1e6;
  return document;
}

std::string BenchText(const BenchReport& bench) {
  const bool open = bench.load.rate > 0;
  const ResidentSpec& matmul = bench.spec.matmul;
  std::string text;
  if (bench.workload.bytes() > 0) {
    text = absl::StrFormat("%s of %s", bench.mode,
                           cli::HumanBytes(static_cast<double>(bench.workload.bytes())));
  } else {
    text = absl::StrFormat("%s of %dx%dx%d %s", bench.mode, matmul.m, matmul.n, matmul.k,
                           client::Name(matmul.dtype));
    if (matmul.quantize.name != "none") absl::StrAppend(&text, " ", matmul.quantize.name);
  }
  absl::StrAppendFormat(&text, ", %s loop, %d in flight", open ? "open" : "closed",
                        bench.load.concurrency);
  if (open)
    absl::StrAppendFormat(&text, ", %.6g due a second%s", bench.load.rate,
                          bench.load.poisson ? " (Poisson)" : "");
  absl::StrAppendFormat(&text, "\n%d requests in %s: %.1f a second", bench.report.latencies.count(),
                        cli::HumanSeconds(bench.report.seconds), Rate(bench.report));
  if (bench.workload.bytes() > 0) {
    absl::StrAppendFormat(&text, ", %.2f GB/s\n\n",
                          Rate(bench.report) * static_cast<double>(bench.workload.bytes()) / 1e9);
  } else {
    absl::StrAppendFormat(&text, ", %.4g TFLOP/s, %s each on the device\n\n",
                          Rate(bench.report) * bench.workload.flops() / 1e12,
                          cli::HumanSeconds(bench.workload.mean_device_seconds()));
  }
  std::vector<std::vector<std::string>> rows = {{"latency"}, {bench.mode}, {"bare echo"}};
  for (const Point& point : kPoints) {
    rows[0].push_back(point.name);
    rows[1].push_back(cli::HumanSeconds(bench.report.latencies.Percentile(point.percent)));
    rows[2].push_back(cli::HumanSeconds(bench.echo.latencies.Percentile(point.percent)));
  }
  absl::StrAppend(&text, cli::Table(rows));
  if (bench.workload.bytes() == 0) {
    absl::StrAppendFormat(&text, "\np50 is %.2f times the bare echo's", Tax(bench));
  }
  if (open)
    absl::StrAppend(&text, "\nsent at most ", cli::HumanSeconds(bench.report.max_late_seconds),
                    " late");
  if (bench.report.unsent > 0) {
    absl::StrAppend(&text, "\n", bench.load.poisson ? "about " : "", bench.report.unsent, " of ",
                    bench.report.due, " requests that were due were not sent: ",
                    bench.report.first_error.ok() ? "the rate is more than was answered"
                                                  : "an error ended the run");
  }
  if (bench.report.unanswered > 0) {
    absl::StrAppend(&text, "\n", bench.report.unanswered,
                    " requests were not answered when the run ended");
  }
  return text + "\n";
}

}  // namespace gemmd::bench
