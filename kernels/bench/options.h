// The command line of gemm_bench.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/bench/shape.h"

namespace gemmd::kernels::bench {

enum class Mode { kMeasure, kQuantize, kList, kShapes, kCompare, kChart, kFeatures, kHelp };

struct Options {
  Mode mode = Mode::kMeasure;

  // What to run.
  std::string suite = "dense44";
  std::string shapes;  // instead of a suite
  int count = 300;
  uint64_t seed = 1;
  RowRange rows;               // of the suite, the shapes within
  DType dtype = DType::kE4M3;  // of the operands: E4M3, BF16, F16 or I8
  bool block_scales = true;    // of E4M3 and I8: 1x128 and 128x128, instead of by row

  // Which kernels.
  std::string kernel;               // forced; empty lets the selector choose
  std::vector<std::string> only;    // the pool is the names that contain one of these
  std::vector<std::string> skip;    // less the names that contain one of these
  std::vector<std::string> tuning;  // tables, of which the mean; none: the model chooses
  bool no_table = false;            // the model chooses, whatever --tuning says

  // How.
  int repeats = 24;
  int places = 8;  // where operands lie in turn
  int repeats_at_a_place() const { return (repeats + places - 1) / places; }
  int bitwise = 0;
  bool check_only = false;
  bool peers = true;
  bool bf16_peer = true;
  bool cold_code = false;
  bool sweep = false;
  int rest_ms = 0;          // before a shape is timed
  int top = 0;              // of a sweep: only the model's first so many; 0 for all
  bool pool_times = false;  // of a sweep: the short measurement of every kernel goes to the JSON
  bool quick = false;       // of a sweep: that measurement alone, and nothing is checked
  int flush_mib = 1024;     // written before each timed call
  bool tune = false;
  std::string out = "tuning.json";  // of --tune
  double budget_s = 0;              // 0: none
  std::string timer = "auto";       // "cupti", "events"
  std::string library_dir;          // where libcublasLt and libcupti are, before the usual places
  int device = 0;

  // Results.
  std::string json;
  std::string commit;
  std::string date;  // empty: today

  // Without a GPU.
  std::string old_json;
  std::string new_json;
  std::string chart;
  std::string features;
  std::string from;
};

// INVALID_ARGUMENT, naming the argument, for what cannot be understood.
absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> args);

std::string_view HelpText();

}  // namespace gemmd::kernels::bench
