// gemm_bench: see --help (options.cc).

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/bench/chart.h"
#include "kernels/bench/compare.h"
#include "kernels/bench/cuda/entries.h"
#include "kernels/bench/cuda/features.h"
#include "kernels/bench/cuda/gated_bench.h"
#include "kernels/bench/cuda/ladder_bench.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/cuda/measure.h"
#include "kernels/bench/cuda/quantize_bench.h"
#include "kernels/bench/ladder_report.h"
#include "kernels/bench/options.h"
#include "kernels/bench/result.h"
#include "kernels/bench/rows_summary.h"
#include "kernels/bench/suites.h"
#include "kernels/bench/summary.h"
#include "kernels/bench/table.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/matmul/selector.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/tuning/tuning_table.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kOk = 0;
constexpr int kBad = 1;
constexpr int kUsage = 2;
constexpr int kNoGpu = 3;

constexpr int kListedVariants = 8;
constexpr absl::Duration kSaveEvery = absl::Seconds(5);
constexpr int64_t kQuantizedK = 7168;  // a hidden size everyone measures
constexpr int64_t kGatedN = 14336;     // Llama-3-8B's inner size

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "gemm_bench: %s\n", std::string(status.message()).c_str());
  return code;
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // a run that is cut has shown what it had
}

bool ContainsAny(const std::string& name, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (absl::StrContains(name, text)) return true;
  }
  return false;
}

std::vector<cuda::GemmVariant> PoolOf(const Options& options) {
  std::vector<cuda::GemmVariant> pool;
  for (const cuda::GemmVariant& variant : cuda::AllVariants()) {
    if (cuda::KindOf(variant.shape().mma).operand != options.dtype) continue;
    const std::string name = Name(variant);
    if (!options.only.empty() && !ContainsAny(name, options.only)) continue;
    if (!ContainsAny(name, options.skip)) pool.push_back(variant);
  }
  return pool;
}

// Remembers a sweep's fastest kernels of a shape; the fallback is nobody's choice.
void AddToTable(const ShapeResult& result, cuda::TuningTable& table) {
  std::vector<cuda::TunedKernel> kernels;
  for (const VariantTime& v : result.best) {
    if (cuda::FindVariant(v.kernel).has_value()) kernels.push_back({v.kernel, v.us * 1e-6});
  }
  const Shape& s = result.shape;
  const DType out = result.dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
  if (!kernels.empty()) table.Set({s.m, s.n, s.k, out, result.dtype}, std::move(kernels));
}

// Writes what there is so far: of --tune the mean of `tables`, the last of which it fills.
absl::Status Save(const Options& options, const Machine& machine, const RunResult& run,
                  const std::vector<cuda::TuningTable>& tables) {
  if (options.tune) {
    const std::string text =
        cuda::TuningTable::Mean(tables).Serialize(machine.traits.model, machine.driver, run.date);
    if (absl::Status status = WriteText(options.out, text); !status.ok()) return status;
  }
  if (options.json.empty()) return absl::OkStatus();
  return WriteText(options.json, ToJson(run));
}

RunResult DescribeRun(const Options& options, const Machine& machine) {
  RunResult run;
  run.dtype = options.dtype;
  run.gpu = machine.traits.model;
  run.driver = machine.driver;
  run.date = options.date.empty() ? absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())
                                  : options.date;
  run.commit = options.commit;
  run.method = machine.timer->method();
  run.cublaslt = machine.cublaslt_text;
  run.repeats = options.repeats;
  return run;
}

// The tables that --tuning names.
absl::StatusOr<std::vector<cuda::TuningTable>> LoadTables(const Options& options,
                                                          const Machine& machine) {
  std::vector<cuda::TuningTable> tables;
  if (options.no_table) return tables;
  for (const std::string& path : options.tuning) {
    absl::StatusOr<cuda::TuningTable> loaded = cuda::TuningTable::Load(path, machine.traits.model);
    if (!loaded.ok()) return loaded.status();
    tables.push_back(*std::move(loaded));
  }
  return tables;
}

int RunShapes(const Options& options, const std::vector<Shape>& shapes, Machine& machine) {
  const absl::Time start = absl::Now();
  absl::Time saved = start;
  absl::StatusOr<std::vector<cuda::TuningTable>> loaded = LoadTables(options, machine);
  if (!loaded.ok()) return Complain(loaded.status(), kUsage);
  std::vector<cuda::TuningTable> tables = *std::move(loaded);
  const std::vector<cuda::GemmVariant> pool = PoolOf(options);
  const cuda::GemmSelector chooser(machine.traits, pool, cuda::TuningTable::Mean(tables));
  tables.emplace_back();
  const cuda::GemmSelector model(machine.traits, pool, {});
  ShapeRunner runner(machine, options, {chooser, model});
  RunResult run = DescribeRun(options, machine);
  run.places = options.quick ? 1 : options.places;
  run.repeats = options.quick ? options.repeats : options.places * options.repeats_at_a_place();
  Print(absl::StrCat(run.gpu, ", driver ", run.driver, ", cuBLASLt ", run.cublaslt, ", ",
                     pool.size(), " kernels\ntimed by ", machine.timer_text, ", ", run.repeats,
                     " calls each, operands at ", run.places, " places, L2 flushed\n"));
  absl::StatusOr<double> copy = MeasureCopy(machine, options.repeats);
  if (!copy.ok()) return Complain(copy.status(), kBad);
  run.copy_gb_s = *copy;
  Print(TableHeader(options.dtype));
  bool good = true;
  for (const Shape& shape : shapes) {
    const bool late = options.budget_s > 0 && absl::Now() - start > absl::Seconds(options.budget_s);
    ShapeResult result;
    result.shape = shape;
    result.dtype = options.dtype;
    if (late || runner.device_lost()) {
      result.message = late ? "the time budget was over" : "the device was lost before";
    } else {
      result = runner.Run(shape);
      good &= result.outcome != Outcome::kWrong && result.outcome != Outcome::kFailed;
    }
    AddToTable(result, tables.back());
    run.shapes.push_back(std::move(result));
    const Summary so_far = Summarize(run);
    Print(TableRow(run.shapes.back(), so_far.best_tensorwise_tflops,
                   options.sweep ? kListedVariants : 0));
    // A file of hundreds of shapes takes its time: it is written anew when that has paid off.
    if (late || absl::Now() - saved < kSaveEvery) continue;
    saved = absl::Now();
    if (absl::Status status = Save(options, machine, run, tables); !status.ok()) {
      return Complain(status, kUsage);
    }
  }
  if (absl::Status status = Save(options, machine, run, tables); !status.ok()) {
    return Complain(status, kUsage);
  }
  Print(SummaryTable(run));
  Print(RowsTable(run));
  if (runner.device_lost()) {
    std::fflush(nullptr);
    _exit(kBad);  // a hanging kernel would keep the CUDA runtime from ending
  }
  return good ? kOk : kBad;
}

absl::StatusOr<std::vector<Shape>> ShapesOf(const Options& options) {
  absl::StatusOr<std::vector<Shape>> shapes =
      options.shapes.empty() ? Suite(options.suite, options.count, options.seed)
                             : ParseShapes(options.shapes);
  if (!shapes.ok()) return shapes.status();
  std::erase_if(*shapes, [&](const Shape& shape) { return !options.rows.contains(shape.m); });
  if (shapes->empty()) return absl::InvalidArgumentError("no shape has that many rows");
  return shapes;
}

int RunLadder(const Options& options, const std::vector<Shape>& shapes, Machine& machine) {
  const absl::StatusOr<std::vector<cuda::TuningTable>> tables = LoadTables(options, machine);
  if (!tables.ok()) return Complain(tables.status(), kUsage);
  const std::vector<cuda::GemmVariant> pool = PoolOf(options);
  const cuda::GemmSelector chooser(machine.traits, pool, cuda::TuningTable::Mean(*tables));
  RunResult run = DescribeRun(options, machine);
  Print(absl::StrCat(run.gpu, ", driver ", run.driver, ", cuBLASLt ", run.cublaslt, "\ntimed by ",
                     machine.timer_text, ", ", run.repeats, " calls each by turns, L2 flushed\n"));
  bool right = true;
  for (const Shape& shape : shapes) {
    absl::StatusOr<std::vector<LadderRow>> rows =
        BenchLadder(machine, options, {chooser, chooser}, shape);
    if (!rows.ok()) return Complain(rows.status(), kBad);
    RunResult part = run;
    part.ladder = *rows;
    Print(LadderTable(part));
    for (LadderRow& row : *rows) {
      right &= row.outcome == Outcome::kOk || row.outcome == Outcome::kRefused;
      run.ladder.push_back(std::move(row));
    }
    if (options.json.empty()) continue;
    if (absl::Status s = WriteText(options.json, ToJson(run)); !s.ok()) return Complain(s, kUsage);
  }
  return right ? kOk : kBad;
}

int MainMeasure(const Options& options) {
  absl::StatusOr<std::vector<Shape>> shapes = ShapesOf(options);
  if (!shapes.ok()) return Complain(shapes.status(), kUsage);
  if (!options.kernel.empty()) {
    if (absl::Status s = CheckKernelName(options.kernel); !s.ok()) return Complain(s, kUsage);
  }
  absl::StatusOr<std::unique_ptr<Machine>> machine = OpenMachine(options);
  if (!machine.ok()) return Complain(machine.status(), kNoGpu);
  if (options.suite == "ladder") return RunLadder(options, *shapes, **machine);
  return RunShapes(options, *shapes, **machine);
}

int MainShapes(const Options& options) {
  absl::StatusOr<std::vector<Shape>> shapes = ShapesOf(options);
  if (!shapes.ok()) return Complain(shapes.status(), kUsage);
  for (const Shape& shape : *shapes) Print(ToString(shape) + "\n");
  return kOk;
}

int MainQuantize(const Options& options) {
  absl::StatusOr<std::unique_ptr<Machine>> machine = OpenMachine(options);
  if (!machine.ok()) return Complain(machine.status(), kNoGpu);
  RunResult run = DescribeRun(options, **machine);
  absl::StatusOr<double> copy = MeasureCopy(**machine, options.repeats);
  if (!copy.ok()) return Complain(copy.status(), kBad);
  run.copy_gb_s = *copy;
  bool right = true;
  for (int64_t rows : {128, 4096, 16384}) {
    for (cuda::QuantizeBlock block :
         {cuda::QuantizeBlock::kRow, cuda::QuantizeBlock::k1x128, cuda::QuantizeBlock::k128x128}) {
      for (const bool int8 : {false, true}) {
        absl::StatusOr<QuantizeResult> result =
            BenchQuantize(**machine, rows, kQuantizedK, block, int8, options.repeats);
        if (!result.ok()) return Complain(result.status(), kBad);
        right &= result->right;
        run.quantize.push_back(*std::move(result));
      }
    }
  }
  for (int64_t rows : {16, 128, 4096, 16384}) {
    absl::StatusOr<QuantizeResult> result = BenchGated(**machine, rows, kGatedN, options.repeats);
    if (!result.ok()) return Complain(result.status(), kBad);
    right &= result->right;
    run.quantize.push_back(*std::move(result));
  }
  Print(QuantizeTable(run));
  if (!options.json.empty()) {
    if (absl::Status s = WriteText(options.json, ToJson(run)); !s.ok()) return Complain(s, kUsage);
  }
  return right ? kOk : kBad;
}

int MainList() {
  for (const cuda::GemmVariant& variant : cuda::AllVariants()) Print(Name(variant) + "\n");
  Print(absl::StrCat(cuda::kAnyGemmName, "\n"));
  return kOk;
}

int MainCompare(const Options& options) {
  absl::StatusOr<RunResult> old_run = ReadRun(options.old_json);
  if (!old_run.ok()) return Complain(old_run.status(), kUsage);
  absl::StatusOr<RunResult> new_run = ReadRun(options.new_json);
  if (!new_run.ok()) return Complain(new_run.status(), kUsage);
  const Comparison comparison = Compare(*old_run, *new_run);
  Print(comparison.text);
  if (comparison.compared == 0 && comparison.regressions == 0) {
    return Complain(absl::InvalidArgumentError("no shape was timed in both runs"), kUsage);
  }
  return comparison.regressions == 0 ? kOk : kBad;
}

int MainChart(const Options& options) {
  absl::StatusOr<RunResult> run = ReadRun(options.from);
  if (!run.ok()) return Complain(run.status(), kUsage);
  const std::string svg = run->ladder.empty() ? Chart(*run) : LadderChart(*run);
  if (absl::Status status = WriteText(options.chart, svg); !status.ok()) {
    return Complain(status, kUsage);
  }
  return kOk;
}

int MainFeatures(const Options& options) {
  absl::StatusOr<RunResult> run = ReadRun(options.from);
  if (!run.ok()) return Complain(run.status(), kUsage);
  if (absl::Status s = WriteText(options.features, FeatureTable(*run)); !s.ok()) {
    return Complain(s, kUsage);
  }
  return kOk;
}

int Main(absl::Span<const char* const> args) {
  absl::StatusOr<Options> options = ParseOptions(args);
  if (!options.ok()) return Complain(options.status(), kUsage);
  switch (options->mode) {
    case Mode::kHelp:
      Print(std::string(HelpText()));
      return kOk;
    case Mode::kList:
      return MainList();
    case Mode::kShapes:
      return MainShapes(*options);
    case Mode::kCompare:
      return MainCompare(*options);
    case Mode::kChart:
      return MainChart(*options);
    case Mode::kFeatures:
      return MainFeatures(*options);
    case Mode::kQuantize:
      return MainQuantize(*options);
    case Mode::kMeasure:
      return MainMeasure(*options);
  }
  return kUsage;
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main(int argc, char** argv) {
  const absl::Span<const char* const> args(argv, argc);
  return gemmd::kernels::bench::Main(args.subspan(args.empty() ? 0 : 1));
}
