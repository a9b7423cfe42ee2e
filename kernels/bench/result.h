// What a run found: one record a shape, and the machine it ran on. The JSON files of
// docs/benchmarks/ are this.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/shape.h"

namespace gemmd::kernels::bench {

enum class Outcome {
  kOk,
  kWrong,    // the result differs from the reference; nothing was timed
  kRefused,  // no kernel of the pool can serve it; `message` says why
  kFailed,   // an error of CUDA; `message` has it
  kSkipped,  // the time budget was over
};
std::string_view Name(Outcome outcome);  // "ok", "wrong", "refused", "failed", "skipped"

struct VariantTime {
  std::string kernel;
  double us = 0;
};

// Times in microseconds, means over the places of the medians there; 0 for what was not measured.
struct ShapeResult {
  Shape shape;
  DType dtype = DType::kE4M3;  // the run's
  Outcome outcome = Outcome::kSkipped;
  std::string message;  // what went wrong; of a fallback, what the other kernels lack
  std::string kernel;
  std::string reason;  // "table", "model", "forced"
  double us = 0;
  double us_p10 = 0;
  double us_p90 = 0;
  std::vector<double> us_by_place;
  double floor_us = 0;           // the same bytes moved cold by a plain kernel
  double cublaslt_block_us = 0;  // with block scales; of another type than E4M3, that type
  double cublaslt_tensorwise_us = 0;
  double cublaslt_bf16_us = 0;
  std::string cublaslt_block_refusal;
  double calc_diff = 0;
  double rel_error = 0;
  double cublaslt_block_calc_diff = 0;
  int64_t checked_rows = 0;  // m, or fewer where the reference was sampled
  int bitwise_runs = 0;      // runs whose bits were compared
  // Of a sweep: the fastest variants in order, and what the cost model alone would take.
  int variants_timed = 0;
  std::vector<VariantTime> best;
  std::string model_kernel;
  double model_us = 0;
  std::vector<VariantTime> pool;  // every kernel by a few calls at one place, if that was asked for
  int64_t batch = 1;              // of bench/python/layouts.py, as is the layout: "nt" lies along k
  std::string layout = "nt";

  double tflops() const { return us > 0 ? shape.flops() / us * 1e-6 : 0; }
  double gb_per_s() const { return us > 0 ? shape.bytes(dtype) / us * 1e-3 : 0; }
};

// Of --quantize: BF16 to E4M3 and its scales. "gated" is silu(gate) * up of [rows, 2k], with scales
// of 1x128.
struct QuantizeResult {
  int64_t rows = 0;
  int64_t k = 0;
  std::string block;  // "row", "1x128", "128x128", of INT8 "row i8"; "gated"
  bool right = false;
  double rel_error = 0;  // of the dequantised values against the source
  double us = 0;
  double us_p10 = 0;
  double us_p90 = 0;
  double floor_us = 0;  // the same bytes moved cold by a plain kernel

  double bytes() const;  // read and written
  double gb_per_s() const { return us > 0 ? bytes() / us * 1e-3 : 0; }
};

// Of --suite ladder: one rung, or a peer beside them, at one shape.
struct LadderRow {
  Shape shape;         // asked for
  Shape took;          // what was multiplied: less where the rung takes no more
  std::string kernel;  // "sm90_ladder_04_tma", "cublaslt_f16", ...
  std::string idea;    // "TMA"
  Outcome outcome = Outcome::kSkipped;
  std::string message;
  bool fp8 = false;  // E4M3 with block scales into BF16; else FP16 into FP16
  double us = 0;
  double us_p10 = 0;
  double us_p90 = 0;
  double calc_diff = 0;
  double rel_error = 0;

  double tflops() const { return us > 0 ? took.flops() / us * 1e-6 : 0; }
};

struct RunResult {
  DType dtype = DType::kE4M3;  // of the operands
  std::string gpu;
  std::string driver;
  std::string date;      // UTC, "2026-11-21"
  std::string commit;    // of the sources, as the caller says
  std::string method;    // of timing: "cupti" or "events"
  std::string cublaslt;  // version, or why it is absent
  int repeats = 0;       // timed calls of each kind, at all places
  int places = 1;        // where operands lay
  double copy_gb_s = 0;  // device to device, read and written
  std::vector<ShapeResult> shapes;
  std::vector<QuantizeResult> quantize;
  std::vector<LadderRow> ladder;
};

std::string ToJson(const RunResult& run);
// INVALID_ARGUMENT, with the place, for a text that ToJson did not write.
absl::StatusOr<RunResult> FromJson(std::string_view json);

absl::StatusOr<RunResult> ReadRun(const std::string& path);
// Writes beside `path` first: a cut run leaves the old file or the new one.
absl::Status WriteText(const std::string& path, std::string_view text);

}  // namespace gemmd::kernels::bench
