#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/commands.h"
#include "bench/floor/echo_client.h"
#include "bench/floor/kept_memory.h"
#include "bench/floor/peer_process.h"
#include "bench/load/generator.h"
#include "bench/load/report.h"
#include "bench/load/workload.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/parser.h"
#include "client/cli/connect.h"
#include "client/cli/transfers.h"

namespace gemmd::bench {
namespace {

constexpr double kEchoes = 100;  // in an open loop, on each side of the run
constexpr cli::Flag kLoadFlags[] = {
    cli::ChoiceFlag("mode", kModeNames, "what one request is", "execute"),
    cli::CountFlag("m", "N", "rows of D", "16", 1),
    cli::CountFlag("n", "N", "columns of D", "16", 1),
    cli::CountFlag("k", "N", "length of the sums", "16", 1),
    cli::ChoiceFlag("dtype", cli::kInputDTypeNames, "of A and B", "f32"),
    cli::ChoiceFlag("out-dtype", cli::kOutputDTypeNames, "of D", "f32"),
    cli::ChoiceFlag("quantize", cli::kQuantizeNames, "A and B, once, before the run", "none"),
    cli::TextFlag("kernel", "NAME", "insist on a kernel of 'gemmctl kernels'"),
    cli::CountFlag("bytes", "N", "modes upload and download: bytes of a request", "16777216", 1),
    cli::ChoiceFlag("route", cli::kRouteNames,
                    "modes inline, plan-inline, upload and download: how bytes travel", "auto"),
    {.name = "concurrency",
     .letter = 'c',
     .kind = cli::ValueKind::kCount,
     .value = "N",
     .fallback = "1",
     .help = "requests in flight at most",
     .min = 1},
    cli::DurationFlag("duration", "TIME", "how long", "5s"),
    cli::DurationFlag(
        "grace", "TIME",
        "how long after that to wait for what is under way; open loop: half of it, to send what "
        "is late",
        "5s"),
    cli::CountFlag("requests", "N", "stop after so many", "", 1),
    cli::NumberFlag(
        "rate", "R",
        "open loop: R requests a second are due, whatever the answers do; latency counts from "
        "when one was due"),
    {.name = "poisson", .help = "open loop: due at random (a Poisson process), not evenly spaced"},
    cli::TextFlag("device", "NAME", "where; default: the server chooses"),
};

absl::Status Usage(std::string message) {
  return cli::WithExit(cli::ExitCode::kUsage, absl::InvalidArgumentError(message));
}

absl::StatusOr<LoadOptions> LoadOf(const cli::Args& args) {
  LoadOptions load = {
      .concurrency = static_cast<int>(std::min<int64_t>(args.Count("concurrency"), 1024)),
      .duration = args.Duration("duration"),
      .grace = args.Duration("grace"),
      .requests = args.Count("requests"),
      .rate = args.Number("rate"),
      .poisson = args.On("poisson")};
  if (args.Count("concurrency") > 1024)
    return Usage("--concurrency is above 1024; start several gemmd_bench");
  if (args.Given("rate") && load.rate <= 0)
    return Usage(absl::StrCat("--rate=", load.rate, " is not above 0"));
  if (load.poisson && load.rate == 0) return Usage("--poisson needs --rate");
  // A count alone is not cut short by the default duration.
  if (args.Given("requests") && !args.Given("duration")) load.duration = absl::Hours(24);
  return load;
}

// As the run's requests are sent: threads and caches that were idle between two of them make either
// several times slower.
LoadOptions EchoLoad(const LoadOptions& load) {
  LoadOptions echo = load;
  echo.requests = 0;
  echo.grace = absl::Seconds(1);
  echo.duration = absl::Milliseconds(300);
  if (load.rate > 0) {
    const absl::Duration enough = absl::Seconds(kEchoes / load.rate);
    echo.duration = std::clamp(enough, echo.duration, absl::Seconds(3));
  }
  return echo;
}

// What requests go to. The workload goes first.
struct UnderTest {
  UnderTest(client::Client client, std::unique_ptr<Workload> workload)
      : client(std::move(client)), workload(std::move(workload)) {}

  client::Client client;
  std::unique_ptr<Workload> workload;
};

absl::Status Unanswered(const LoadReport& report, const LoadOptions& load) {
  return cli::WithExit(
      cli::ExitCode::kUnreachable,
      absl::DeadlineExceededError(
          absl::StrCat(report.unanswered, " requests were not answered within ",
                       absl::FormatDuration(load.duration + load.grace),
                       " of the run; ask for less at once, or give --duration and --grace more")));
}

absl::Status RunLoadCommand(cli::Invocation& call) {
  KeepFreedMemory();
  const std::string target = call.args.Text("server");
  absl::StatusOr<LoadOptions> load = LoadOf(call.args);
  if (!load.ok()) return load.status();
  const std::string mode = call.args.Text("mode");
  WorkloadSpec spec = {.mode = mode,
                       .workers = load->concurrency,
                       .matmul = {.m = call.args.Count("m"),
                                  .n = call.args.Count("n"),
                                  .k = call.args.Count("k"),
                                  .dtype = *client::ParseDType(call.args.Text("dtype")),
                                  .out_dtype = *client::ParseDType(call.args.Text("out-dtype")),
                                  .quantize = cli::QuantizeModeOf(call.args.Text("quantize")),
                                  .kernel = call.args.Text("kernel")},
                       .device = call.args.Text("device"),
                       .transfer_bytes = call.args.Count("bytes"),
                       .route = cli::RouteOf(call.args.Text("route"))};
  absl::StatusOr<std::unique_ptr<PeerProcess>> peer = PeerProcess::Start(target);
  if (!peer.ok()) return cli::WithExit(cli::ExitCode::kInternal, peer.status());
  absl::StatusOr<client::Client> client = cli::Connect(call.args, cli::CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Workload>> made = MakeWorkload(*client, spec);
  if (!made.ok()) return made.status();
  // Shared with requests that are left behind unanswered: they may end after this command has.
  const auto under_test = std::make_shared<UnderTest>(*std::move(client), *std::move(made));
  const auto echo = std::make_shared<EchoClient>((*peer)->target());
  const Workload& workload = *under_test->workload;
  const auto echo_request = [echo, bytes = workload.message_bytes(),
                             reply_bytes = workload.reply_bytes()](int) {
    return echo->Unary(bytes, reply_bytes);
  };
  const auto request = [under_test](int worker) { return under_test->workload->Request(worker); };
  // Connections, caches and clocks warm up; then the run, between two halves of the echo.
  const LoadOptions warm_up = {.concurrency = load->concurrency,
                               .duration = absl::Milliseconds(300),
                               .grace = load->duration + load->grace};
  LoadReport warm = RunLoad(warm_up, request);
  if (!warm.first_error.ok()) return warm.first_error;
  if (warm.unanswered > 0) return Unanswered(warm, warm_up);
  LoadReport bare = RunLoad(warm_up, echo_request);
  const LoadOptions half = EchoLoad(*load);
  bare = RunLoad(half, echo_request);
  const LoadReport report = RunLoad(*load, request);
  const LoadReport bare_after = RunLoad(half, echo_request);
  bare.latencies.Merge(bare_after.latencies);
  if (!bare_after.first_error.ok())
    return cli::WithExit(cli::ExitCode::kInternal, bare_after.first_error);
  if (report.latencies.count() == 0 && !report.first_error.ok()) return report.first_error;
  const BenchReport result = {.mode = mode,
                              .target = target,
                              .load = *load,
                              .spec = spec,
                              .report = report,
                              .echo = bare,
                              .workload = workload};
  call.out.Result(BenchJson(result), BenchText(result));
  if (!report.first_error.ok()) return report.first_error;
  return report.unanswered > 0 ? Unanswered(report, *load) : absl::OkStatus();
}

}  // namespace

const cli::Command kLoadCommand = {
    .name = "load",
    .summary = "latency and throughput of one kind of request, beside a bare gRPC echo",
    .details =
        "Closed loop by default: --concurrency requests in flight, the next when one is answered. "
        "With --rate an open\n"
        "loop: requests are due at fixed or (--poisson) random times and latency counts from then, "
        "so that a stall is\n"
        "charged to all that it delayed; the echo comes as often. Matrices lie on the server, but "
        "in modes inline and plan-inline A\n"
        "comes with each request and D with its answer, as the echo's bytes do; percentiles are "
        "exact. Each run ends when --duration and --grace are over, and tells what was due and not "
        "sent, or sent and not answered (exit code 4).",
    .flags = kLoadFlags,
    .run = RunLoadCommand};

}  // namespace gemmd::bench
