// grouped_bench: grouped matmuls of this build on this machine's GPU, beside a plain read of the
// weights that have rows. Every result is first held against the kernel that takes anything.
//
//   grouped_bench [--suite
//   all|masked|thin|prefill|ragged|sizes|experts|small|broad-fit|broad-judge]
//                 [--dtype TYPE] [--count N]
//                 [--repeats N] [--config N] [--grain N] [--kernels chosen|all] [--again N]
//                 [--only TEXT]
//                 [--timer auto|cupti|events] [--json FILE] [--commit TEXT] [--seed N]
//                 [--case GROUPSxROWSxNxK,..]
//
// --dtype: e4m3, e4m3-row, i8-block, i8 (scales by row), bf16 or f16. --config: that pair of the
// family's configs instead of the choice; of block scales, that one of the kernels (few, units,
// pairs, rests). --grain: how the kernel for groups of any size cuts them (0 wide, 1 halves, 2
// thin), in place of what the device chooses. --kernels all: of FP8, each of these is timed, too,
// and the choice's regret told.
// --count: so many cases of broad-fit or broad-judge, whose rows go into the JSON for
// scripts/grouped_peers.py. --again: as many more runs have to give the same bits. --only: cases
// with that in their name.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/bench/choice_regret.h"
#include "kernels/bench/cuda/grouped/broad_cases.h"
#include "kernels/bench/cuda/grouped/grouped_measure.h"

namespace gemmd::kernels::bench {
namespace {

constexpr DType kDTypesTimed[] = {DType::kE4M3, DType::kI8, DType::kBF16, DType::kF16};

struct GroupedRun {
  std::string suite = "all";
  std::string timer = "auto";  // as Options has it
  std::string cases, json, commit, only;
  DType dtype = DType::kE4M3;
  bool blocks = true;
  int count = 40;
  GroupedMethod method;

  bool broad() const { return suite.starts_with("broad-"); }
};

constexpr const char* kKernels[cuda::kRowsKernels] = {"few", "units", "pairs", "rests"};

// By times of the same round: the chosen kernel's first one follows other kernels, and its code is
// cold.
double RegretOf(const GroupedTime& time) {
  return ChoiceRegret(time.kernels_us[time.chosen], time.kernels_us);
}

// Thresholds come from cases at even places; those at odd ones judge them.
void TellRegrets(const std::vector<GroupedTime>& times) {
  std::vector<double> halves[2];
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].kernels_us.empty()) continue;
    halves[i % 2].push_back(RegretOf(times[i]));
  }
  for (int half : {0, 1}) {
    if (halves[half].empty()) continue;
    const RegretSummary all = SummaryOf(halves[half]);
    std::printf("regret of %zu cases, %s half: mean %.2f %%, most %.2f %%\n", halves[half].size(),
                half == 0 ? "first" : "held-out", all.mean * 100, all.most * 100);
  }
}

// What another program needs to multiply the same.
std::string ShapeFields(const GroupedTime& time) {
  const bool fp8 = time.c.dtype == DType::kE4M3 && time.c.blocks;
  return absl::StrFormat(", \"chosen\": \"%s\", \"n\": %d, \"k\": %d, \"rows\": [%s]",
                         fp8 ? kKernels[time.chosen] : "direct", time.c.n, time.c.k,
                         absl::StrJoin(time.c.rows, ","));
}

// A line {line, name, value, unit, wanted, ok} for each case.
std::string Figures(const std::vector<GroupedTime>& times, const GroupedRun& run,
                    const Machine& machine) {
  std::string text = FiguresHead(machine, run.commit);
  for (size_t i = 0; i < times.size(); ++i) {
    const GroupedTime& t = times[i];
    const bool by_rate = t.c.wanted_tflops > 0;
    absl::StrAppendFormat(
        &text,
        "  {\"line\": %d, \"name\": \"%s\", \"value\": %.2f, \"unit\": \"%s\", \"wanted\": %s, "
        "\"ok\": %s, \"us\": %.2f, \"floor_us\": %.2f, \"tflops\": %.1f, \"difference\": "
        "%.2e%s%s%s}%s\n",
        t.c.line, t.c.name(), by_rate ? t.tflops() : t.us, by_rate ? "TFLOP/s" : "us",
        by_rate               ? absl::StrCat("\">= ", t.c.wanted_tflops, "\"")
        : t.c.wanted_us > 0   ? absl::StrCat("\"<= ", t.c.wanted_us, "\"")
        : t.c.wanted_read > 0 ? absl::StrCat("\"<= ", t.c.wanted_read, " of a read\"")
                              : "null",
        t.ok() ? "true" : "false", t.us, t.floor_us, t.tflops(), t.difference,
        t.kernels_us.empty()
            ? ""
            : absl::StrFormat(", \"kernels_us\": [%s]", absl::StrJoin(t.kernels_us, ", ")),
        run.broad() ? ShapeFields(t) : "",
        t.trouble.empty() ? "" : absl::StrCat(", \"trouble\": \"", t.trouble, "\""),
        i + 1 < times.size() ? "," : "");
  }
  return absl::StrCat(text, " ]}\n");
}

constexpr char kUsage[] =
    R"(grouped_bench: measures grouped matmuls on this machine's GPU, beside a plain read of the weights that have rows.

  --suite SUITE     all (default), masked, thin, prefill, ragged, sizes, experts, or small: for a sanitizer;
                    broad-fit or broad-judge: experts of public models that nothing was tuned for
  --count N         so many cases of broad-fit or broad-judge; default 40
  --case CASES      instead of a suite: groups x rows x n x k, as 64x300x4096x7168 or 64x96..512x4096x7168,..
  --only TEXT       cases whose names contain it, as 64x(192)
  --dtype DTYPE     e4m3 (default), e4m3-row, i8-block, i8 (scales by row), bf16 or f16
  --repeats N       timed calls of each case; default 12
  --again N         as many more calls must give the same bits
  --config N        this pair of the family's configs, not the chosen one; of block scales: this kernel
  --grain N         groups of any size in wide tiles (0), halves (1) or thin ones (2), not as the device chooses
  --kernels WHICH   chosen (default) or all: of FP8, each kernel is timed, and the choice's regret told
  --timer WHICH     auto (default), cupti or events; under compute-sanitizer: events
  --seed N          of the groups' sizes and of the data
  --json FILE       written anew behind each case; --commit TEXT goes into it

Every result is held against the kernel for any operands before it is timed. Exit status 1 when one differs.
)";

absl::StatusOr<GroupedRun> Parse(int argc, char** argv) {
  GroupedRun run;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) return absl::InvalidArgumentError(name + " needs a value");
    const std::string value = argv[i + 1];
    bool ok = true;
    if (name == "--suite") {
      run.suite = value;
    } else if (name == "--case") {
      run.cases = value;
    } else if (name == "--json") {
      run.json = value;
    } else if (name == "--commit") {
      run.commit = value;
    } else if (name == "--only") {
      run.only = value;
    } else if (name == "--repeats") {
      ok = absl::SimpleAtoi(value, &run.method.repeats) && run.method.repeats > 0;
    } else if (name == "--count") {
      ok = absl::SimpleAtoi(value, &run.count) && run.count > 0;
    } else if (name == "--config") {
      ok = absl::SimpleAtoi(value, &run.method.config) && run.method.config >= 0;
    } else if (name == "--grain") {
      ok = absl::SimpleAtoi(value, &run.method.grain) && run.method.grain >= 0 &&
           run.method.grain < cuda::kGrains;
    } else if (name == "--again") {
      ok = absl::SimpleAtoi(value, &run.method.again) && run.method.again >= 0;
    } else if (name == "--kernels") {
      if (value != "chosen" && value != "all") {
        return absl::InvalidArgumentError(name + " " + value + ": use chosen or all");
      }
      run.method.all_kernels = value == "all";
    } else if (name == "--timer") {
      if (value != "auto" && value != "cupti" && value != "events") {
        return absl::InvalidArgumentError(name + " " + value + ": use auto, cupti or events");
      }
      run.timer = value;
    } else if (name == "--dtype") {
      const DType* const found = std::find_if(std::begin(kDTypesTimed), std::end(kDTypesTimed),
                                              [&](DType d) { return value.starts_with(Name(d)); });
      run.blocks = value == "e4m3" || value == "i8-block";
      const bool by_row = value == "e4m3-row";
      if (found == std::end(kDTypesTimed) || (value != Name(*found) && !run.blocks && !by_row)) {
        return absl::InvalidArgumentError(name + " " + value +
                                          ": use e4m3, e4m3-row, i8-block, i8, bf16 or f16");
      }
      run.dtype = *found;
    } else if (name == "--seed") {
      ok = absl::SimpleAtoi(value, &run.method.seed);
    } else {
      return absl::InvalidArgumentError(name + ": no such option");
    }
    if (!ok) return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": not a number"));
  }
  return run;
}

std::vector<GroupedBenchCase> CasesOf(const GroupedRun& run) {
  if (!run.broad()) return GroupedCases(run.suite, run.dtype, run.blocks, run.method.seed);
  if (run.suite != "broad-fit" && run.suite != "broad-judge") return {};
  std::vector<GroupedBenchCase> cases =
      BroadCases(run.suite == "broad-fit" ? Half::kFit : Half::kJudge, run.count, run.method.seed);
  for (GroupedBenchCase& c : cases) {
    c.dtype = run.dtype;
    c.blocks = run.blocks;
  }
  return cases;
}

int Main(int argc, char** argv) {
  const auto complain = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "grouped_bench: %s\n", std::string(status.message()).c_str());
    return code;
  };
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto run = Parse(argc, argv);
  if (!run.ok()) return complain(run.status(), 2);
  std::vector<GroupedBenchCase> cases = CasesOf(*run);
  if (!run->cases.empty()) {
    auto asked = ParseCases(run->cases, run->dtype, run->blocks, run->method.seed);
    if (!asked.ok()) return complain(asked.status(), 2);
    cases = *std::move(asked);
  }
  std::erase_if(cases, [&](const GroupedBenchCase& c) {
    return c.name().find(run->only) == std::string::npos;
  });
  if (cases.empty()) return complain(absl::InvalidArgumentError("no such suite or case"), 2);
  auto machine = OpenMachine({.timer = run->timer});
  if (!machine.ok()) return complain(machine.status(), 3);
  std::vector<GroupedTime> times;
  bool right = true;
  GroupedWorkload work;
  for (const GroupedBenchCase& c : cases) {
    GroupedTime& time = times.emplace_back(GroupedTime{.c = c});
    const absl::Status status = MeasureGrouped(run->method, **machine, work, time);
    time.trouble = std::string(status.message());
    right &= status.ok();
    std::printf("%-8s %-44s %9.2f us %8.1f TFLOP/s, read %9.2f us x%.3f %s%s\n", c.suite.c_str(),
                c.name().c_str(), time.us, time.tflops(), time.floor_us,
                time.floor_us > 0 ? time.us / time.floor_us : 0.0, time.ok() ? "" : "MISSED ",
                time.trouble.c_str());
    if (c.useful_rows > 0 && times.size() > 1 && time.us > 0) {
      std::printf("    x%.3f of the same without padding\n", time.us / times.end()[-2].us);
    }
    for (size_t i = 0; i < time.kernels_us.size(); ++i) {
      std::printf("    %s %.2f us", kKernels[i], time.kernels_us[i]);
    }
    if (!time.kernels_us.empty()) {
      std::printf("; chosen %s, regret %.2f %%\n", kKernels[time.chosen], RegretOf(time) * 100);
    }
    std::fflush(stdout);
    if (!run->json.empty()) std::ofstream(run->json) << Figures(times, *run, **machine);
  }
  TellRegrets(times);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main(int argc, char** argv) {
  const int code = gemmd::kernels::bench::Main(argc, argv);
  std::fflush(nullptr);
  _exit(code);  // a GPU that faulted would hang the runtime's own end
}
