#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/bench/report.h"
#include "client/cli/bench/workload.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/floor/echo_client.h"
#include "client/cli/floor/kept_memory.h"
#include "client/cli/floor/peer_process.h"
#include "client/cli/floor/suite.h"
#include "client/cli/load/generator.h"
#include "client/cli/serving/run.h"
#include "client/cli/transfers.h"

namespace gemmd::cli {
namespace {

constexpr double kEchoes = 100;  // in an open loop, on each side of the run
constexpr absl::string_view kSuites[] = {"floor", "serving", "soak"};
constexpr Flag kFlags[] = {
    {.name = "mode",
     .kind = ValueKind::kChoice,
     .fallback = "execute",
     .help = "what one request is",
     .choices = kModeNames},
    {.name = "m",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "16",
     .help = "rows of D",
     .min = 1},
    {.name = "n",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "16",
     .help = "columns of D",
     .min = 1},
    {.name = "k",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "16",
     .help = "length of the sums",
     .min = 1},
    {.name = "dtype",
     .kind = ValueKind::kChoice,
     .fallback = "f32",
     .help = "of A and B",
     .choices = kInputDTypeNames},
    {.name = "out-dtype",
     .kind = ValueKind::kChoice,
     .fallback = "f32",
     .help = "of D",
     .choices = kOutputDTypeNames},
    {.name = "quantize",
     .kind = ValueKind::kChoice,
     .fallback = "none",
     .help = "A and B, once, before the run",
     .choices = kQuantizeNames},
    {.name = "kernel",
     .kind = ValueKind::kText,
     .value = "NAME",
     .help = "insist on a kernel of 'gemmctl kernels'"},
    {.name = "bytes",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "16777216",
     .help = "modes upload and download: bytes of a request",
     .min = 1},
    {.name = "route",
     .kind = ValueKind::kChoice,
     .fallback = "auto",
     .help = "modes inline, plan-inline, upload and download: how bytes travel",
     .choices = kRouteNames},
    {.name = "concurrency",
     .letter = 'c',
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "1",
     .help = "requests in flight at most",
     .min = 1},
    {.name = "duration",
     .kind = ValueKind::kDuration,
     .value = "TIME",
     .fallback = "5s",
     .help = "how long"},
    {.name = "grace",
     .kind = ValueKind::kDuration,
     .value = "TIME",
     .fallback = "5s",
     .help =
         "how long after that to wait for what is under way; open loop: half of it, to send what "
         "is late"},
    {.name = "requests",
     .kind = ValueKind::kCount,
     .value = "N",
     .help = "stop after so many",
     .min = 1},
    {.name = "rate",
     .kind = ValueKind::kNumber,
     .value = "R",
     .help = "open loop: R requests a second are due, whatever the answers do; latency counts from "
             "when one was due"},
    {.name = "poisson", .help = "open loop: due at random (a Poisson process), not evenly spaced"},
    {.name = "device",
     .kind = ValueKind::kText,
     .value = "NAME",
     .help = "where; default: the server chooses"},
    {.name = "suite",
     .kind = ValueKind::kChoice,
     .help = "a fixed set of measurements instead; see above",
     .choices = kSuites},
    {.name = "python",
     .kind = ValueKind::kFile,
     .value = "PATH",
     .fallback = "python3",
     .help = "suites floor and serving: the interpreter that has the package gemmd"},
    {.name = "only",
     .kind = ValueKind::kText,
     .value = "TEXT",
     .help = "suite serving: the measurements whose names contain it; the names are what it tells "
             "on its way"},
    {.name = "quick", .help = "suite serving: in seconds, on any device; the figures mean nothing"},
    {.name = "small",
     .kind = ValueKind::kText,
     .value = "TARGET",
     .help = "suite serving: a listener of a tenant that sends small programs"},
    {.name = "large",
     .kind = ValueKind::kText,
     .value = "TARGET",
     .help = "and of one that sends large ones, both of the same weight"},
    {.name = "lookahead",
     .kind = ValueKind::kDuration,
     .value = "TIME",
     .fallback = "2ms",
     .help = "suite serving: the daemon's scheduler.lookahead_us"},
    {.name = "ops",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "200000",
     .help = "suite soak: how many",
     .min = 10},
    {.name = "out",
     .kind = ValueKind::kFile,
     .value = "FILE",
     .help = "suites serving and soak: the document of --json into a file, beside the table"},
};

absl::Status Usage(std::string message) {
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(message));
}

absl::Status RunFloor(Invocation& call) {
  const std::string target = call.args.Text("server");
  // Before any gRPC thread exists in this process: the child is a fork of it.
  absl::StatusOr<std::unique_ptr<PeerProcess>> peer = PeerProcess::Start(target);
  if (!peer.ok()) return WithExit(ExitCode::kInternal, peer.status());
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<client::Session> session =
      client->OpenSession({.label = "gemmctl bench floor", .device = call.args.Text("device")});
  if (!session.ok()) return Explained(session.status(), target);
  EchoClient echo((*peer)->target());
  const Floor floor = {.client = *client,
                       .session = *session,
                       .echo = echo,
                       .peer = **peer,
                       .target = target,
                       .python = {call.args.Text("python"), SecurityFlags(call.args)}};
  absl::StatusOr<std::vector<Ratio>> ratios = MeasureFloor(floor, [&](const std::string& what) {
    call.out.Note(absl::StrCat("measuring ", what, " ..."));
  });
  if (!ratios.ok()) return Explained(ratios.status(), target);
  Json document = {
      {"suite", "floor"}, {"server", target}, {"cores", std::thread::hardware_concurrency()}};
  int missed = 0;
  for (const Ratio& ratio : *ratios) {
    document[std::string(ratio.spec.key)] = ratio.measured() ? Json(ratio.value()) : Json();
    missed += ratio.pass() ? 0 : 1;
  }
  document["pass"] = missed == 0;
  for (const Ratio& ratio : *ratios)
    document["detail"][std::string(ratio.spec.key)] = RatioJson(ratio);
  call.out.Result(document, RatioTable(*ratios));
  if (missed == 0) return absl::OkStatus();
  return WithExit(ExitCode::kCheckFailed,
                  absl::FailedPreconditionError(
                      absl::StrCat(missed, " of ", ratios->size(), " ratios miss their target")));
}

absl::StatusOr<LoadOptions> LoadOf(const Args& args) {
  LoadOptions load = {
      .concurrency = static_cast<int>(std::min<int64_t>(args.Count("concurrency"), 1024)),
      .duration = args.Duration("duration"),
      .grace = args.Duration("grace"),
      .requests = args.Count("requests"),
      .rate = args.Number("rate"),
      .poisson = args.On("poisson")};
  if (args.Count("concurrency") > 1024)
    return Usage("--concurrency is above 1024; start several gemmctl");
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
  return WithExit(ExitCode::kUnreachable,
                  absl::DeadlineExceededError(absl::StrCat(
                      report.unanswered, " requests were not answered within ",
                      absl::FormatDuration(load.duration + load.grace),
                      " of the run; ask for less at once, or give --duration and --grace more")));
}

absl::Status RunBench(Invocation& call) {
  KeepFreedMemory();
  if (call.args.Given("suite")) {
    const std::string suite = call.args.Text("suite");
    if (suite == "serving") return RunServingSuite(call);
    if (suite == "soak") return RunSoakSuite(call);
    return RunFloor(call);
  }
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
                                  .quantize = QuantizeModeOf(call.args.Text("quantize")),
                                  .kernel = call.args.Text("kernel")},
                       .device = call.args.Text("device"),
                       .transfer_bytes = call.args.Count("bytes"),
                       .route = RouteOf(call.args.Text("route"))};
  absl::StatusOr<std::unique_ptr<PeerProcess>> peer = PeerProcess::Start(target);
  if (!peer.ok()) return WithExit(ExitCode::kInternal, peer.status());
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Workload>> made = MakeWorkload(*client, spec);
  if (!made.ok()) return Explained(made.status(), target);
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
  if (!warm.first_error.ok()) return Explained(warm.first_error, target);
  if (warm.unanswered > 0) return Unanswered(warm, warm_up);
  LoadReport bare = RunLoad(warm_up, echo_request);
  const LoadOptions half = EchoLoad(*load);
  bare = RunLoad(half, echo_request);
  const LoadReport report = RunLoad(*load, request);
  const LoadReport bare_after = RunLoad(half, echo_request);
  bare.latencies.Merge(bare_after.latencies);
  if (!bare_after.first_error.ok()) return WithExit(ExitCode::kInternal, bare_after.first_error);
  if (report.latencies.count() == 0 && !report.first_error.ok())
    return Explained(report.first_error, target);
  const BenchReport result = {.mode = mode,
                              .target = target,
                              .load = *load,
                              .spec = spec,
                              .report = report,
                              .echo = bare,
                              .workload = workload};
  call.out.Result(BenchJson(result), BenchText(result));
  if (!report.first_error.ok()) return Explained(report.first_error, target);
  return report.unanswered > 0 ? Unanswered(report, *load) : absl::OkStatus();
}

}  // namespace

const Command kBenchCommand = {
    .name = "bench",
    .summary = "measure latency and throughput, beside a bare gRPC echo in the same run",
    .details =
        "Closed loop by default: --concurrency requests in flight, the next when one is answered. "
        "With --rate an open\n"
        "loop: requests are due at fixed or (--poisson) random times and latency counts from then, "
        "so that a stall is\n"
        "charged to all that it delayed; the echo comes as often. Matrices lie on the server, but "
        "in modes inline and plan-inline A\n"
        "comes with each request and D with its answer, as the echo's bytes do; percentiles are "
        "exact. Each run ends when --duration and --grace are over, and tells what was due and not "
        "sent, or sent and not answered (exit code 4).\n\n"
        "--suite floor measures what the daemon adds to its parts, each against the bare part in "
        "turns in the same run:\n"
        "Execute and Queue against gRPC echoes, uploads against a raw stream and memcpy, matmuls "
        "against OpenBLAS, Python\n"
        "against C++. Exit code 1 when a ratio misses its target; one that cannot be measured is "
        "null and says why.\n\n"
        "--suite serving measures what calling the daemon costs over calling its kernels: Execute, "
        "Queue, a plan of a decode\n"
        "step, uploads, two devices, two tenants (--small and --large), workers that share a "
        "weight. --suite soak runs --ops\n"
        "mixed ops and looks whether the daemon has grown; exit code 1 when it has. Both want a "
        "daemon of this host that\n"
        "nobody else uses.",
    .flags = kFlags,
    .run = RunBench};

}  // namespace gemmd::cli
