#include "kernels/bench/options.h"

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::kernels::bench {
namespace {

constexpr std::string_view kHelp =
    R"(gemm_bench: measures the matmul kernels of this build on this machine's GPU.

  gemm_bench                                     the 44 shapes everyone measures, beside cuBLASLt
  gemm_bench --suite random --count 300          other shapes; also: odd, models
  gemm_bench --dtype bf16                        other operands: bf16, f16, i8, i8-block, e4m3-row
  gemm_bench --shapes 64x4096x7168,1x576x7168    these shapes
  gemm_bench --sweep --shapes 64x4096x7168       every kernel of the pool, fastest first
  gemm_bench --tune --out FILE                   measures the pool and writes a tuning table
  gemm_bench --suite ladder                      the skeleton's ideas one by one, FP16 and FP8, beside cuBLASLt
  gemm_bench --quantize                          the quantize and gated kernels against copy bandwidth
  gemm_bench --list                              the names of the pool
  gemm_bench --list-shapes --suite models-judge  the shapes of a suite, as --shapes takes them; needs no GPU
  gemm_bench --compare OLD.json NEW.json         what became slower; needs no GPU
  gemm_bench --chart FILE.svg --from FILE.json   percent of floor by shape, or of the ladder's rungs; needs no GPU
  gemm_bench --features FILE.csv --from FILE.json   of a sweep with --pool-times, for fit_model.py; needs no GPU

Every result is checked against float64 before it is timed. Times are the device's own, L2 is
flushed before each call, and the kinds that are compared take turns.

What to run
  --suite dense44|ladder|random|odd|models[-odd][-fit|-judge]|broad-fit|broad-judge|narrow-fit|narrow-judge
                               default dense44. models: layers of public models, whole and divided among 2, 4 and 8
                               ranks, of the half for fitting, the half for judging, or both; -odd: those that are no
                               multiples of 128. broad: any rows, tiles' edges among them, of a half's or random weights.
                               --count shapes of it, rows from 1 to 4096 in turns. narrow: few columns, few k, small layers,
                               and up to 131072 rows
  --shapes MxNxK,...           instead of a suite
  --count N, --seed N          of the suites random, models, broad and narrow; default 300 and 1. The seed also makes the data
  --rows LEAST-MOST            of the suite, only shapes with so many rows
  --dtype e4m3|bf16|f16|i8     of the operands; default e4m3, with 1x128 and 128x128 scales, as i8-block has. i8 and e4m3-row
                               have scales by row. Results are BF16, of f16 FP16; cuBLASLt's column "same" is of that type, of i8
                               with 32-bit results, and e4m3-row has none
Which kernels
  --tuning FILE[,FILE]         a tuning table, or the mean of several; without one, the cost model chooses. With --tune,
                               tables of earlier runs, whose times enter the mean that is written
  --no-table                   the cost model chooses, whatever --tuning says
  --kernel NAME                this one, for every shape
  --only TEXT[,TEXT]           the pool is the kernels whose names contain one of these
  --skip TEXT[,TEXT]           less those whose names contain one of these
  --top N                      of --sweep and --tune: the N that the cost model ranks first
How
  --repeats N                  timed calls of each kind; default 24
  --places N                   by turns at N places in memory where the operands lie: as many calls at each, rounded
                               up. The mean of the places' medians is reported; default 8
  --bitwise N                  N more runs must give the same bits
  --check-only                 check, time nothing
  --no-peers                   leave cuBLASLt out
  --no-bf16                    of cuBLASLt, leave BF16 out
  --pool-times                 of --sweep: a short measurement of every kernel goes to the JSON, to fit a model to
  --quick                      of --sweep: that short measurement of --repeats calls is all, and one of what is far behind;
                               nothing is checked, so check the pool before: --check-only --sweep
  --flush-mib N                written before each timed call, to take from L2 what is there; default 1024. Twice L2's
                               size does it; more keeps the chip cooler between long kernels
  --cold-code                  other code runs before each timed call, so that none finds its own in the SMs' caches;
                               --sweep and --tune do so anyway, where neighbours are often the same kernel
  --rest-ms N                  idle so long before a shape is timed: a sweep heats the chip, and what it gains by a
                               kernel with less power is not what a cooler one gains; default 0
  --budget-s S                 stop after S seconds; shapes left over are marked skipped
  --timer auto|cupti|events    auto: CUPTI where the machine has it
  --library-dir DIR            looked into first for libcublasLt and libcupti
  --device N                   default 0
Results
  --json FILE                  written anew every few seconds, so that a cut run leaves one
  --commit TEXT, --date TEXT   recorded in it

Exit codes: 0 all right; 1 a wrong result, a failed shape or a regression; 2 usage; 3 no usable GPU.
)";

std::vector<std::string> SplitList(const std::string& text) {
  return absl::StrSplit(text, ',', absl::SkipEmpty());
}

using Setter = std::function<absl::Status(const std::string&)>;

struct Flag {
  std::string_view name;
  bool takes_value;
  Setter set;
};

Flag Switch(std::string_view name, bool& to, bool value = true) {
  return {name, false, [&to, value](const std::string&) {
            to = value;
            return absl::OkStatus();
          }};
}

Flag ModeSwitch(std::string_view name, Options& options, Mode mode) {
  return {name, false, [&options, mode](const std::string&) {
            options.mode = mode;
            return absl::OkStatus();
          }};
}

Flag Text(std::string_view name, std::string& to) {
  return {name, true, [&to](const std::string& value) {
            to = value;
            return absl::OkStatus();
          }};
}

Flag List(std::string_view name, std::vector<std::string>& to) {
  return {name, true, [&to](const std::string& value) {
            to = SplitList(value);
            return absl::OkStatus();
          }};
}

template <class T>
Flag Integer(std::string_view name, T& to, T least, T most) {
  return {name, true, [name, &to, least, most](const std::string& value) {
            T parsed{};
            if (absl::SimpleAtoi(value, &parsed) && parsed >= least && parsed <= most) {
              to = parsed;
              return absl::OkStatus();
            }
            return absl::InvalidArgumentError(absl::StrCat(
                std::string(name), " ", value, ": not an integer from ", least, " to ", most));
          }};
}

absl::Status SetRows(const std::string& value, RowRange& rows) {
  const std::vector<std::string> ends = absl::StrSplit(value, '-');
  if (ends.size() == 2 && absl::SimpleAtoi(ends[0], &rows.least) &&
      absl::SimpleAtoi(ends[1], &rows.most) && rows.least <= rows.most) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--rows ", value, ": not a range of rows, as 65-512"));
}

absl::Status SetDType(const std::string& value, Options& options) {
  static constexpr struct {
    const char* name;
    DType dtype;
    bool block_scales;
  } kKnown[] = {{"e4m3", DType::kE4M3, true},  {"e4m3-row", DType::kE4M3, false},
                {"bf16", DType::kBF16, false}, {"f16", DType::kF16, false},
                {"i8", DType::kI8, false},     {"i8-block", DType::kI8, true}};
  for (const auto& known : kKnown) {
    if (known.name != value) continue;
    options.dtype = known.dtype;
    options.block_scales = known.block_scales;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype ", value, ": not one of e4m3, e4m3-row, bf16, f16, i8, i8-block"));
}

std::vector<Flag> FlagsOf(Options& o) {
  return {
      ModeSwitch("--help", o, Mode::kHelp),
      ModeSwitch("-h", o, Mode::kHelp),
      ModeSwitch("--quantize", o, Mode::kQuantize),
      ModeSwitch("--list", o, Mode::kList),
      ModeSwitch("--list-shapes", o, Mode::kShapes),
      ModeSwitch("--compare", o, Mode::kCompare),
      Text("--suite", o.suite),
      Text("--shapes", o.shapes),
      Integer("--count", o.count, 1, 100000),
      Integer("--seed", o.seed, uint64_t{0}, uint64_t{1} << 40),
      Text("--kernel", o.kernel),
      List("--only", o.only),
      List("--skip", o.skip),
      List("--tuning", o.tuning),
      Switch("--no-table", o.no_table),
      Integer("--repeats", o.repeats, 1, 1000),
      Integer("--places", o.places, 1, 64),
      Integer("--bitwise", o.bitwise, 0, 10000),
      Switch("--check-only", o.check_only),
      Switch("--no-peers", o.peers, false),
      Switch("--no-bf16", o.bf16_peer, false),
      Switch("--pool-times", o.pool_times),
      Switch("--quick", o.quick),
      Integer("--flush-mib", o.flush_mib, 1, 16384),
      {"--dtype", true, [&o](const std::string& value) { return SetDType(value, o); }},
      {"--rows", true, [&o](const std::string& value) { return SetRows(value, o.rows); }},
      Switch("--cold-code", o.cold_code),
      Integer("--rest-ms", o.rest_ms, 0, 60000),
      Switch("--sweep", o.sweep),
      Integer("--top", o.top, 1, 100000),
      Switch("--tune", o.tune),
      Text("--out", o.out),
      {"--budget-s", true,
       [&o](const std::string& value) {
         if (absl::SimpleAtod(value, &o.budget_s) && o.budget_s > 0) return absl::OkStatus();
         return absl::InvalidArgumentError(
             absl::StrCat("--budget-s ", value, ": not a positive number of seconds"));
       }},
      Text("--timer", o.timer),
      Text("--library-dir", o.library_dir),
      Integer("--device", o.device, 0, 63),
      Text("--json", o.json),
      Text("--commit", o.commit),
      Text("--date", o.date),
      {"--chart", true,
       [&o](const std::string& value) {
         o.chart = value;
         o.mode = Mode::kChart;
         return absl::OkStatus();
       }},
      {"--features", true,
       [&o](const std::string& value) {
         o.features = value;
         o.mode = Mode::kFeatures;
         return absl::OkStatus();
       }},
      Text("--from", o.from),
  };
}

absl::Status CheckTogether(const Options& o, const std::vector<std::string>& files) {
  if (o.mode == Mode::kHelp) return absl::OkStatus();
  if (o.mode == Mode::kCompare ? files.size() != 2 : !files.empty()) {
    return absl::InvalidArgumentError(
        o.mode == Mode::kCompare
            ? std::string("--compare takes two files: the old one and the new one")
            : absl::StrCat("'", files[0], "': not an option; see --help"));
  }
  if ((o.mode == Mode::kChart || o.mode == Mode::kFeatures) && o.from.empty()) {
    return absl::InvalidArgumentError(o.mode == Mode::kChart
                                          ? "--chart FILE.svg needs --from FILE.json"
                                          : "--features FILE.csv needs --from FILE.json");
  }
  if (o.timer != "auto" && o.timer != "cupti" && o.timer != "events") {
    return absl::InvalidArgumentError(
        absl::StrCat("--timer ", o.timer, ": use auto, cupti or events"));
  }
  if (!o.kernel.empty() && (o.sweep || o.tune)) {
    return absl::InvalidArgumentError("--kernel takes one kernel, --sweep and --tune the pool");
  }
  if (o.pool_times && !o.sweep) {
    return absl::InvalidArgumentError("--pool-times is of --sweep; add it");
  }
  if (o.quick && (!o.sweep || o.check_only)) {
    return absl::InvalidArgumentError("--quick is of a --sweep that measures");
  }
  if (o.check_only && o.tune) {
    return absl::InvalidArgumentError("--tune needs times, --check-only takes none");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> args) {
  Options options;
  const std::vector<Flag> flags = FlagsOf(options);
  std::vector<std::string> files;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i];
    const size_t equals = arg.rfind("--", 0) == 0 ? arg.find('=') : std::string::npos;
    const std::string name = arg.substr(0, equals);
    const Flag* flag = nullptr;
    for (const Flag& f : flags) {
      if (f.name == name) flag = &f;
    }
    if (flag == nullptr) {
      if (arg.rfind("-", 0) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": no such option; see --help"));
      }
      files.push_back(arg);
      continue;
    }
    std::string value;
    if (flag->takes_value && equals != std::string::npos) {
      value = arg.substr(equals + 1);
    } else if (flag->takes_value) {
      if (++i == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      }
      value = args[i];
    } else if (equals != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(name, " takes no value"));
    }
    if (absl::Status status = flag->set(value); !status.ok()) return status;
  }
  if (absl::Status status = CheckTogether(options, files); !status.ok()) return status;
  if (options.mode == Mode::kCompare) {
    options.old_json = files[0];
    options.new_json = files[1];
  }
  return options;
}

std::string_view HelpText() { return kHelp; }

}  // namespace gemmd::kernels::bench
