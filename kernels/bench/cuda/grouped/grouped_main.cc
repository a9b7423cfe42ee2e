// grouped_bench: grouped matmuls of this build on this machine's GPU, beside a plain read of the
// weights that have rows. Every result is first held against the kernel that takes anything.
//
//   grouped_bench [--suite all|masked|thin|prefill|ragged|sizes|experts|small] [--dtype TYPE]
//                 [--repeats N] [--config N] [--again N] [--only TEXT] [--json FILE]
//                 [--commit TEXT] [--seed N]
//
// --dtype: e4m3, i8-block, i8 (scales by row), bf16 or f16. --config: that pair of the family's
// configs instead of the choice, of block scales that kernel of RowsKernel. --again: as many
// more runs have to give the same bits. --only: cases with that in their name.

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
#include "kernels/bench/cuda/grouped/grouped_workload.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

// Largest difference of two orders of summation, rounded to BF16.
constexpr double kLargestDifference = 5e-3;
constexpr int kFloorsTried = 4;
constexpr DType kDTypesTimed[] = {DType::kE4M3, DType::kI8, DType::kBF16, DType::kF16};

struct GroupedRun {
  std::string suite = "all";
  std::string json, commit, only;
  DType dtype = DType::kE4M3;
  bool blocks = true;
  int repeats = 12, config = -1, again = 0;
  uint64_t seed = 1;
};

struct GroupedTime {
  GroupedBenchCase c;
  std::string trouble;
  double us = 0, floor_us = 0, difference = 0;

  double tflops() const { return us > 0 ? c.flops() / us * 1e-6 : 0; }
  bool ok() const {
    return trouble.empty() && (c.wanted_us == 0 || us <= c.wanted_us) &&
           (c.wanted_tflops == 0 || tflops() >= c.wanted_tflops) &&
           (c.wanted_read == 0 || us <= c.wanted_read * floor_us);
  }
};

absl::Status Measure(const GroupedRun& run, Machine& machine, GroupedWorkload& work,
                     GroupedTime& time) {
  if (absl::Status s = work.Prepare(time.c, run.seed, machine.stream); !s.ok()) return s;
  auto mine = work.Bind(true, machine.traits, run.config);
  if (!mine.ok()) return mine.status();
  auto other = work.Bind(false, machine.traits);
  if (!other.ok()) return other.status();
  for (const Call& call : {*mine, *other}) {
    if (absl::Status s = call(machine.stream); !s.ok()) return s;
  }
  auto difference = work.Difference(machine.stream);
  if (!difference.ok()) return difference.status();
  time.difference = *difference;
  if (!(time.difference <= kLargestDifference)) {
    return absl::InternalError(absl::StrCat("wrong: difference ", time.difference));
  }
  for (int i = 0; i < run.again; ++i) {
    if (absl::Status s = (*mine)(machine.stream); !s.ok()) return s;
    const absl::StatusOr<bool> same = work.SameBits(machine.stream);
    if (!same.ok()) return same.status();
    if (!*same) return absl::InternalError(absl::StrCat("other bits in run ", i + 2));
  }
  std::vector<Call> calls = {*mine};
  const FloorTraffic traffic = work.traffic();
  for (int i = 0; i < kFloorsTried; ++i) {
    calls.push_back([i, traffic, sms = machine.traits.sms](cudaStream_t stream) {
      return cuda::ToStatus(LaunchFloor(kFloorConfigs[i], traffic, sms, stream), "the floor");
    });
  }
  auto seconds = machine.timer->Time(calls, run.repeats);
  if (!seconds.ok()) return seconds.status();
  time.us = Median((*seconds)[0]) * 1e6;
  for (size_t i = 1; i < seconds->size(); ++i) {
    const double us = Median((*seconds)[i]) * 1e6;
    if (time.floor_us == 0 || us < time.floor_us) time.floor_us = us;
  }
  return absl::OkStatus();
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
        "%.2e%s}%s\n",
        t.c.line, t.c.name(), by_rate ? t.tflops() : t.us, by_rate ? "TFLOP/s" : "us",
        by_rate               ? absl::StrCat("\">= ", t.c.wanted_tflops, "\"")
        : t.c.wanted_us > 0   ? absl::StrCat("\"<= ", t.c.wanted_us, "\"")
        : t.c.wanted_read > 0 ? absl::StrCat("\"<= ", t.c.wanted_read, " of a read\"")
                              : "null",
        t.ok() ? "true" : "false", t.us, t.floor_us, t.tflops(), t.difference,
        t.trouble.empty() ? "" : absl::StrCat(", \"trouble\": \"", t.trouble, "\""),
        i + 1 < times.size() ? "," : "");
  }
  return absl::StrCat(text, " ]}\n");
}

constexpr char kUsage[] =
    R"(grouped_bench: measures grouped matmuls on this machine's GPU, beside a plain read of the weights that have rows.

  --suite all|masked|thin|prefill|ragged|sizes|experts|small   default all
  --only TEXT       cases whose names contain it, as 64x(192)
  --dtype DTYPE     e4m3 (default), i8-block, i8 (scales by row), bf16 or f16
  --repeats N       timed calls of each case; default 12
  --again N         as many more calls must give the same bits
  --config N        this pair of the family's configs, not the chosen one; of block scales 0 for few
                    rows, 1 for units of 64, 2 for pairs
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
    } else if (name == "--json") {
      run.json = value;
    } else if (name == "--commit") {
      run.commit = value;
    } else if (name == "--only") {
      run.only = value;
    } else if (name == "--repeats") {
      ok = absl::SimpleAtoi(value, &run.repeats) && run.repeats > 0;
    } else if (name == "--config") {
      ok = absl::SimpleAtoi(value, &run.config) && run.config >= 0;
    } else if (name == "--again") {
      ok = absl::SimpleAtoi(value, &run.again) && run.again >= 0;
    } else if (name == "--dtype") {
      const DType* const found = std::find_if(std::begin(kDTypesTimed), std::end(kDTypesTimed),
                                              [&](DType d) { return value.starts_with(Name(d)); });
      run.blocks = value == "e4m3" || value == "i8-block";
      if (found == std::end(kDTypesTimed) || (value != Name(*found) && !run.blocks)) {
        return absl::InvalidArgumentError(name + " " + value +
                                          ": use e4m3, i8-block, i8, bf16 or f16");
      }
      run.dtype = *found;
    } else if (name == "--seed") {
      ok = absl::SimpleAtoi(value, &run.seed);
    } else {
      return absl::InvalidArgumentError(name + ": no such option");
    }
    if (!ok) return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": not a number"));
  }
  return run;
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
  std::vector<GroupedBenchCase> cases =
      GroupedCases(run->suite, run->dtype, run->blocks, run->seed);
  std::erase_if(cases, [&](const GroupedBenchCase& c) {
    return c.name().find(run->only) == std::string::npos;
  });
  if (cases.empty()) return complain(absl::InvalidArgumentError("no such suite or case"), 2);
  auto machine = OpenMachine({});
  if (!machine.ok()) return complain(machine.status(), 3);
  std::vector<GroupedTime> times;
  bool right = true;
  GroupedWorkload work;
  for (const GroupedBenchCase& c : cases) {
    GroupedTime& time = times.emplace_back(GroupedTime{.c = c});
    const absl::Status status = Measure(*run, **machine, work, time);
    time.trouble = std::string(status.message());
    right &= status.ok();
    std::printf("%-8s %-44s %9.2f us %8.1f TFLOP/s, read %9.2f us x%.3f %s%s\n", c.suite.c_str(),
                c.name().c_str(), time.us, time.tflops(), time.floor_us,
                time.floor_us > 0 ? time.us / time.floor_us : 0.0, time.ok() ? "" : "MISSED ",
                time.trouble.c_str());
    std::fflush(stdout);
    if (!run->json.empty()) std::ofstream(run->json) << Figures(times, *run, **machine);
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main(int argc, char** argv) {
  const int code = gemmd::kernels::bench::Main(argc, argv);
  std::fflush(nullptr);
  _exit(code);  // a GPU that faulted would hang the runtime's own end
}
