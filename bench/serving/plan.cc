#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/generator.h"
#include "bench/load/percentiles.h"
#include "bench/serving/daemon_process.h"
#include "bench/serving/decode.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMessageBytes = 150;  // about what a RunPlan takes each way
constexpr int kRepeats = 20;            // of each kind of kernel, after two that warm up
const client::ExecuteOptions kSummary = {.report = client::ReportLevel::kSummary};

struct KindTime {
  std::string name;
  double seconds = 0;  // all of its ops back to back, the median of the runs
};

// Each kind of op as a plan of its own: one kernel after the other, nothing between them.
absl::StatusOr<std::vector<KindTime>> TimeKinds(const Serving& serving, const DecodeStep& step) {
  std::vector<KindTime> times;
  for (const DecodeStep::Kind& kind : step.kinds) {
    absl::StatusOr<client::Plan> plan = serving.session.CreatePlan(kind.ops);
    if (!plan.ok()) return plan.status();
    Latencies device;
    for (int i = -2; i < kRepeats; ++i) {
      absl::StatusOr<client::Result> result = plan->Run({}, kSummary);
      if (!result.ok()) return result.status();
      if (i >= 0) device.Add(result->report().device_seconds());
    }
    times.push_back({kind.name, device.Percentile(50)});
  }
  return times;
}

struct PlanTimes {
  Latencies wall;    // of one run and its answer
  Latencies device;  // of those runs
  Latencies queued;  // from the daemon's taking one of them to the device's start
  Latencies echo;    // one that comes as rarely
  double queued_wall = 0;
  std::optional<double> cpu_seconds;  // the daemon's, for one queued run
  std::optional<double> single_cpu_seconds;
  std::string no_cpu;  // why not
};

// Threads that have slept as long as such a run takes wake later than those of echoes without a
// pause.
absl::StatusOr<Latencies> TimeRareEchoes(const Serving& serving, double seconds_apart) {
  const LoadReport report =
      RunLoad({.duration = serving.sizes.duration, .rate = 1 / seconds_apart},
              [&](int) { return serving.echo.Unary(kMessageBytes, kMessageBytes); });
  if (!report.first_error.ok()) return report.first_error;
  return report.latencies;
}

absl::StatusOr<PlanTimes> TimePlan(const Serving& serving, const DecodeStep& step) {
  absl::StatusOr<client::Plan> plan = serving.session.CreatePlan(step.ops, {.label = "decode"});
  if (!plan.ok()) return plan.status();
  PlanTimes times;
  const int runs = serving.sizes.plan_runs;
  const absl::StatusOr<pid_t> pid = ListenerOf(serving.share_socket);
  const auto cpu = [&]() -> absl::StatusOr<double> {
    if (!pid.ok()) return pid.status();
    absl::StatusOr<ProcessUse> use = UseOf(*pid);
    if (!use.ok()) return use.status();
    return use->cpu_seconds;
  };
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<client::Result> result = plan->Run({}, kSummary);
    if (!result.ok()) return result.status();
  }
  absl::StatusOr<double> before = cpu();
  for (int i = 0; i < runs; ++i) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = plan->Run({}, kSummary);
    if (!result.ok()) return result.status();
    times.wall.Add(absl::ToDoubleSeconds(absl::Now() - start));
    times.device.Add(result->report().device_seconds());
    times.queued.Add(result->report().queue_seconds());
  }
  absl::StatusOr<double> after = cpu();
  if (before.ok() && after.ok()) times.single_cpu_seconds = (*after - *before) / runs;
  absl::StatusOr<Latencies> echo = TimeRareEchoes(serving, times.wall.Percentile(50));
  if (!echo.ok()) return echo.status();
  times.echo = *std::move(echo);

  absl::StatusOr<client::Queue> queue =
      serving.session.OpenQueue({.report = client::ReportLevel::kSummary});
  if (!queue.ok()) return queue.status();
  before = cpu();
  const absl::Time start = absl::Now();
  std::vector<client::Ticket> tickets;
  for (int i = 0; i < runs; ++i) {
    absl::StatusOr<client::Ticket> ticket = queue->Submit(*plan);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*std::move(ticket));
  }
  for (client::Ticket& ticket : tickets) {
    if (absl::Status status = ticket.Wait().status(); !status.ok()) return status;
  }
  times.queued_wall = absl::ToDoubleSeconds(absl::Now() - start) / runs;
  after = cpu();
  if (before.ok() && after.ok()) times.cpu_seconds = (*after - *before) / runs;
  if (!after.ok()) times.no_cpu = std::string(after.status().message());
  return times;
}

}  // namespace

std::vector<Figure> MeasurePlan(const Serving& serving) {
  const ServingSizes& sizes = serving.sizes;
  const std::string what =
      absl::StrCat("a plan of ", static_cast<int64_t>(sizes.layers * sizes.projections.size()),
                   " matmuls and their quantisations at m=", sizes.plan_rows);
  Figure queued = {.key = "plan_queued_over_kernels",
                   .what = absl::StrCat(what,
                                        ": wall of a run, runs following one another in a "
                                        "Queue, over the device time of its kernels"),
                   .wanted = 1.03,
                   .at_most = true};
  Figure single = {.key = "plan_over_kernels",
                   .what = "the same by RunPlan, one run and its answer at a time",
                   .wanted = 1.03,
                   .at_most = true};
  Figure less_echo = {.key = "plan_less_echo_over_kernels",
                      .what = "the same, less the p50 of a bare echo that comes as rarely",
                      .wanted = 1.03,
                      .at_most = true};
  Figure cpu = {.key = "plan_host_cpu",
                .what = "the daemon's CPU time for such a run",
                .unit = "ms",
                .wanted = 1,
                .at_most = true};
  const auto missing = [&](const absl::Status& status) {
    return std::vector<Figure>{Missing(queued, status), Missing(single, status),
                               Missing(less_echo, status), Missing(cpu, status)};
  };
  absl::StatusOr<DecodeStep> step = MakeDecodeStep(serving.session, sizes);
  if (!step.ok()) return missing(step.status());
  absl::StatusOr<std::vector<KindTime>> kinds = TimeKinds(serving, *step);
  if (!kinds.ok()) return missing(kinds.status());
  absl::StatusOr<PlanTimes> times = TimePlan(serving, *step);
  if (!times.ok()) return missing(times.status());

  double kernels = 0;
  cli::Json each = cli::Json::object();
  for (const KindTime& kind : *kinds) {
    kernels += kind.seconds;
    each[kind.name] = kind.seconds / sizes.layers * 1e6;
  }
  if (kernels <= 0) return missing(absl::InternalError("the daemon reports no device time"));
  queued.seen = times->queued_wall / kernels;
  queued.detail = {{"wall_us", times->queued_wall * 1e6},
                   {"kernels_us", kernels * 1e6},
                   {"runs", sizes.plan_runs},
                   {"weight_bytes", step->weight_bytes},
                   {"kernel_us", each}};
  single.seen = times->wall.Percentile(50) / kernels;
  single.detail = {{"wall_p50_us", times->wall.Percentile(50) * 1e6},
                   {"wall_p99_us", times->wall.Percentile(99) * 1e6},
                   {"queued_p50_us", times->queued.Percentile(50) * 1e6},
                   {"device_p50_us", times->device.Percentile(50) * 1e6}};
  less_echo.seen = (times->wall.Percentile(50) - times->echo.Percentile(50)) / kernels;
  less_echo.detail = {{"echo_p50_us", times->echo.Percentile(50) * 1e6},
                      {"echo_p99_us", times->echo.Percentile(99) * 1e6}};
  if (times->cpu_seconds.has_value()) {
    cpu.seen = *times->cpu_seconds * 1e3;
    cpu.detail = {{"by_run_plan_ms", times->single_cpu_seconds.value_or(0) * 1e3}};
  } else {
    cpu.missing = times->no_cpu;
  }
  return {queued, single, less_echo, cpu};
}

}  // namespace gemmd::bench
