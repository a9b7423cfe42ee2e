// moe_bench: layers of experts on this machine's GPU. A first matmul with its gate, grouped or
// dense, beside the same without one, and whole layers as one program, beside a plain read of what
// has to be read. Results of the fused kernels are first held against those of the kernels behind
// one another.
//
//   moe_bench [--suite all|gate|layer|broad-fit|broad-judge] [--count N] [--only TEXT] [--repeats
//   N] [--json FILE] [--commit TEXT]
//             [--seed N]
//
// broad-fit and broad-judge: layers of public models that nothing was tuned for. --only: cases with
// that in their name.

#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "kernels/bench/cuda/cupti_timer.h"
#include "kernels/bench/cuda/grouped/broad_layers.h"
#include "kernels/bench/cuda/grouped/dense_gate_workload.h"
#include "kernels/bench/cuda/grouped/gate_workload.h"
#include "kernels/bench/cuda/grouped/layer_workload.h"
#include "kernels/bench/cuda/grouped/moe_cases.h"
#include "kernels/bench/cuda/grouped/moe_report.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kFloorsTried = 4;
constexpr int64_t kFlushBytes = int64_t{256} << 20;
// Of two results of a layer that were gated with other roundings of the product.
constexpr double kLargestDifference = 0.02;
constexpr char kFillKernel[] = "Move";  // in the name of a FillOp's kernel, and of no other here

// Medians of the calls, by turns, and behind them the quickest way to read `traffic`.
absl::StatusOr<std::vector<double>> TimeBeside(std::vector<Call> calls, const FloorTraffic& traffic,
                                               int repeats, Machine& machine) {
  const size_t mine = calls.size();
  for (int i = 0; i < kFloorsTried; ++i) {
    calls.push_back([i, traffic, sms = machine.traits.sms](cudaStream_t stream) {
      return cuda::ToStatus(LaunchFloor(kFloorConfigs[i], traffic, sms, stream), "the floor");
    });
  }
  auto seconds = machine.timer->Time(calls, repeats);
  if (!seconds.ok()) return seconds.status();
  std::vector<double> medians;
  for (size_t i = 0; i < mine; ++i) medians.push_back(Median((*seconds)[i]));
  double floor = 0;
  for (size_t i = mine; i < seconds->size(); ++i) {
    const double one = Median((*seconds)[i]);
    if (floor == 0 || one < floor) floor = one;
  }
  medians.push_back(floor);
  return medians;
}

absl::Status MeasureGate(const GateCase& c, const MoeRun& run, Machine& machine, Report& report) {
  GateWorkload work;
  if (absl::Status s = work.Prepare(c.rows, c.n, c.k, run.seed, machine.stream); !s.ok()) return s;
  std::vector<Call> calls;
  for (const GateWay way : {GateWay::kAlone, GateWay::kFused, GateWay::kApart}) {
    auto call = work.Bind(way, machine.traits);
    if (!call.ok()) return call.status();
    if (absl::Status s = (*call)(machine.stream); !s.ok()) return s;
    calls.push_back(*std::move(call));
  }
  if (absl::Status s = work.Compare(machine.stream); !s.ok()) return s;
  auto seconds = TimeBeside(calls, work.traffic(GateWay::kFused), run.repeats, machine);
  if (!seconds.ok()) return seconds.status();
  const std::vector<double>& s = *seconds;
  report.Add(5, absl::StrCat(c.name, ": matmul alone"), s[0] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(c.name, ": gate fused"), s[1] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(c.name, ": gate behind it"), s[2] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(c.name, ": a plain read"), s[3] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(c.name, ": fused, useful"), work.flops() / s[1] * 1e-12, "TFLOP/s", 0);
  report.Add(5, absl::StrCat(c.name, ": fused / alone"), s[1] / s[0], "", c.wanted_ratio);
  return absl::OkStatus();
}

// Of a program's runs but the first two, whose graph is yet to be made.
struct ProgramTimes {
  std::vector<double> seconds;  // as the stream tells them
  RunParts parts;               // by kernel; empty without CUPTI

  // From the first kernel's start to the last one's end where the profiler tells.
  double median() const { return parts.us > 0 ? parts.us * 1e-6 : Median(seconds); }
};

// Between runs the caches are filled with something else. The fill is still running when the
// program is launched behind it, so that no time of the host's is in the program's.
absl::StatusOr<ProgramTimes> RunProgram(Backend& backend, const std::vector<Op>& ops,
                                        const Bindings& slots, const DeviceBuffer& flush,
                                        int repeats) {
  auto program = backend.Compile(ops);
  if (!program.ok()) return program.status();
  FillOp fill;
  fill.dst = {.slot = 0, .dtype = DType::kF32, .shape = MakeDims({kFlushBytes / 4})};
  fill.dst.strides = MakeDims({1});
  const Op other(fill);
  auto flushes = backend.Compile(absl::MakeSpan(&other, 1));
  if (!flushes.ok()) return flushes.status();
  const std::unique_ptr<Stream> stream = backend.CreateStream({});
  ProgramTimes times;
  for (int i = 0; i < repeats + 2; ++i) {
    // What is left of the first two is no run to be timed.
    if (i == 2) TakeKernelSpans().status().IgnoreError();
    LaunchResult filled, result;
    absl::Notification fill_done, done;
    Bindings memory;
    memory.slots.push_back(reinterpret_cast<std::byte*>(flush.data()));
    stream->Launch(*flushes, std::move(memory), [&](LaunchResult r) {
      filled = std::move(r);
      fill_done.Notify();
    });
    Bindings again;
    again.slots = slots.slots;
    stream->Launch(*program, std::move(again), [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    fill_done.WaitForNotification();
    done.WaitForNotification();
    for (const absl::Status& status : {filled.status, result.status}) {
      if (!status.ok()) return status;
    }
    if (i >= 2) times.seconds.push_back(result.device_seconds);
  }
  auto spans = TakeKernelSpans();
  if (spans.ok()) times.parts = PartsOfRuns(*std::move(spans), kFillKernel);
  return times;
}

double Difference(const std::vector<uint16_t>& mine, const std::vector<uint16_t>& other) {
  const auto value = [](uint16_t code) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(code) << 16));
  };
  double error = 0, norm = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const double x = value(mine[i]), y = value(other[i]);
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(error / norm);
}

struct Backends {
  std::unique_ptr<Backend> fused, apart, any;
};

absl::Status MeasureLayer(const LayerCase& c, const MoeRun& run, Machine& machine,
                          Backends& backends, Report& report) {
  LayerWorkload work;
  DeviceBuffer flush;
  if (absl::Status s = flush.Reserve(kFlushBytes); !s.ok()) return s;
  if (absl::Status s = work.Prepare(c, run.seed, machine.stream); !s.ok()) return s;
  std::vector<uint16_t> results[3];
  double medians[3];
  ProgramTimes times[3];
  int i = 0;
  for (Backend* backend : {backends.any.get(), backends.apart.get(), backends.fused.get()}) {
    auto seconds = RunProgram(*backend, work.Ops(), work.Memory(), flush, i == 0 ? 1 : run.repeats);
    if (!seconds.ok()) return seconds.status();
    auto result = work.Result();
    if (!result.ok()) return result.status();
    results[i] = *std::move(result);
    medians[i] = seconds->median();
    times[i++] = *std::move(seconds);
  }
  if (results[1] != results[2]) return absl::InternalError("wrong: fused and apart differ");
  const double difference = Difference(results[2], results[0]);
  if (!(difference <= kLargestDifference)) {
    return absl::InternalError(absl::StrCat("wrong: difference ", difference));
  }
  auto floor = TimeBeside({}, work.traffic(), run.repeats, machine);
  if (!floor.ok()) return floor.status();
  const std::string name = absl::StrCat("layer ", c.name());
  report.Add(6, name, medians[2] * 1e6, "us", c.wanted_us);
  report.Add(6, absl::StrCat(name, ": gates apart"), medians[1] * 1e6, "us", 0);
  report.Add(6, absl::StrCat(name, ": read of active weights"), (*floor)[0] * 1e6, "us", 0);
  report.Add(6, absl::StrCat(name, ": layer / read"), medians[2] / (*floor)[0], "", c.wanted_ratio);
  report.Add(6, absl::StrCat(name, ": useful"), c.flops() / medians[2] * 1e-12, "TFLOP/s", 0);
  report.Add(6, absl::StrCat(name, ": as the stream tells it"), Median(times[2].seconds) * 1e6,
             "us", 0);
  for (const int way : {1, 2}) {
    for (const KernelPart& kernel : times[way].parts.kernels) {
      report.Add(6,
                 absl::StrCat(name, way == 1 ? ": gates apart" : "", ": added by ", kernel.name,
                              absl::StrFormat(", %.1f to %.1f", kernel.start_us, kernel.end_us)),
                 kernel.added_us, "us", 0);
    }
  }
  report.Add(6, absl::StrCat(name, ": difference from the kernel for any"), difference, "",
             kLargestDifference);
  return absl::OkStatus();
}

// A matmul and the same with a gate, in one kernel and in two.
absl::Status MeasureDense(const DenseCase& c, const MoeRun& run, Machine& machine,
                          Backends& backends, Report& report) {
  DenseGateWorkload work;
  DeviceBuffer flush;
  if (absl::Status s = flush.Reserve(kFlushBytes); !s.ok()) return s;
  if (absl::Status s = work.Prepare(c.m, c.n, c.k, run.seed, machine.stream); !s.ok()) return s;
  double medians[3];
  int i = 0;
  for (const auto& [backend, gate] : {std::pair(backends.fused.get(), false),
                                      {backends.fused.get(), true},
                                      {backends.apart.get(), true}}) {
    auto seconds = RunProgram(*backend, work.Ops(gate), work.Memory(), flush, run.repeats);
    if (!seconds.ok()) return seconds.status();
    medians[i++] = seconds->median();
  }
  auto floor = TimeBeside({}, work.traffic(), run.repeats, machine);
  if (!floor.ok()) return floor.status();
  const std::string name = absl::StrCat("dense ", c.m, "x", c.n, "x", c.k);
  report.Add(5, absl::StrCat(name, ": matmul alone"), medians[0] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(name, ": with its gate"), medians[1] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(name, ": gate behind it"), medians[2] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(name, ": read of the weights"), (*floor)[0] * 1e6, "us", 0);
  report.Add(5, absl::StrCat(name, ": with gate / alone"), medians[1] / medians[0], "",
             c.wanted_ratio);
  return absl::OkStatus();
}

absl::StatusOr<Backends> MakeBackends() {
  Backends backends;
  for (const auto& [made, disabled] : {std::pair(&backends.fused, std::vector<std::string>()),
                                       {&backends.apart, {"sm90_fp8_gate"}},
                                       {&backends.any, {"sm90_fp8_grouped"}}}) {
    CudaBackendOptions options;
    options.memory_bytes = int64_t{1} << 30;  // of its own; slots are the workload's
    options.disabled_kernels = disabled;
    options.self_test = false;
    auto backend = CreateCudaBackend(options);
    if (!backend.ok()) return backend.status();
    *made = *std::move(backend);
  }
  return backends;
}

constexpr char kUsage[] =
    R"(moe_bench: measures layers of experts as one graph, and matmuls with a gate, on this machine's GPU.

  --suite all|gate|layer   default all; broad-fit or broad-judge: layers that nothing was tuned for
  --count N         so many of these; default 12
  --only TEXT       cases whose names contain it
  --repeats N       timed runs of each case; default 12
  --seed N          of the routing and of the data
  --json FILE       the figures; --commit TEXT goes into it

Each kernel's share of a layer's time stands in a line of its own, where CUPTI tells it. Results are held against the
kernels for any operands. Exit status 1 when one differs.
)";

absl::StatusOr<MoeRun> Parse(int argc, char** argv) {
  MoeRun run;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) return absl::InvalidArgumentError(name + " needs a value");
    const std::string value = argv[i + 1];
    bool ok = true;
    if (name == "--suite") {
      run.suite = value;
      ok = value == "all" || value == "gate" || value == "layer" || run.broad();
    } else if (name == "--json") {
      run.json = value;
    } else if (name == "--commit") {
      run.commit = value;
    } else if (name == "--only") {
      run.only = value;
    } else if (name == "--repeats") {
      ok = absl::SimpleAtoi(value, &run.repeats) && run.repeats > 0;
    } else if (name == "--count") {
      ok = absl::SimpleAtoi(value, &run.count) && run.count > 0;
    } else if (name == "--seed") {
      ok = absl::SimpleAtoi(value, &run.seed);
    } else {
      return absl::InvalidArgumentError(name + ": no such option");
    }
    if (!ok)
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": none of its values"));
  }
  return run;
}

Half HalfOf(const MoeRun& run) { return run.suite == "broad-fit" ? Half::kFit : Half::kJudge; }

std::vector<GateCase> GatesOf(const MoeRun& run) {
  if (!run.broad()) return GateCases(run.seed);
  return BroadGates(HalfOf(run), run.count, run.seed);
}

std::vector<LayerCase> LayersOf(const MoeRun& run) {
  if (!run.broad()) return LayerCases();
  return BroadLayers(HalfOf(run), run.count, run.seed);
}

int Main(int argc, char** argv) {
  const auto complain = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "moe_bench: %s\n", std::string(status.message()).c_str());
    return code;
  };
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto run = Parse(argc, argv);
  if (!run.ok()) return complain(run.status(), 2);
  auto machine = OpenMachine({});
  if (!machine.ok()) return complain(machine.status(), 3);
  Report report(*run, **machine);
  const auto wanted = [&](const std::string& name) {
    return name.find(run->only) != std::string::npos;
  };
  if (run->suite != "layer") {
    for (const GateCase& c : GatesOf(*run)) {
      if (!wanted(c.name)) continue;
      const absl::Status status = MeasureGate(c, *run, **machine, report);
      if (!status.ok()) report.Wrong(c.name, status);
    }
  }
  if (run->suite != "gate") {
    auto backends = MakeBackends();
    if (!backends.ok()) return complain(backends.status(), 3);
    for (const DenseCase& c : kDenseCases) {
      if (!wanted("dense") || run->broad()) continue;
      const absl::Status status = MeasureDense(c, *run, **machine, *backends, report);
      if (!status.ok()) report.Wrong("dense", status);
    }
    for (const LayerCase& c : LayersOf(*run)) {
      if (!wanted(c.name())) continue;
      const absl::Status status = MeasureLayer(c, *run, **machine, *backends, report);
      if (!status.ok()) report.Wrong(c.name(), status);
    }
  }
  return report.right() ? 0 : 1;
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main(int argc, char** argv) {
  const int code = gemmd::kernels::bench::Main(argc, argv);
  std::fflush(nullptr);
  _exit(code);  // a GPU that faulted would hang the runtime's own end
}
