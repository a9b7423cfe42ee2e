#include "kernels/bench/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/summary.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

std::string Ratio(double over, double under) {
  return over > 0 && under > 0 ? absl::StrFormat("%6.3f", over / under) : "     -";
}

std::string Percent(double share) {
  return share > 0 ? absl::StrFormat("%5.1f%%", share * 100) : "     -";
}

}  // namespace

std::string TableHeader(DType dtype) {
  const char* same = dtype == DType::kE4M3 ? "block" : "same";
  return absl::StrFormat("%-19s %9s %6s %7s %6s %9s %6s  %6s %6s %6s  %8s  %s\n", "m x n x k", "us",
                         "spread", "TFLOP/s", "GB/s", "floor us", "floor", same, "tensor", "bf16",
                         "diff", "kernel (chosen by)");
}

std::string TableRow(const ShapeResult& r, double best_tensorwise_tflops, int listed) {
  std::string out;
  if (r.outcome != Outcome::kOk) {
    out = absl::StrFormat("%-19s %s: %s\n", ToString(r.shape), Text(Name(r.outcome)), r.message);
    if (r.us == 0) return out;  // of a sweep, the right ones are timed all the same
  }
  out += absl::StrFormat("%-19s ", ToString(r.shape));
  if (r.us > 0) {
    absl::StrAppend(
        &out,
        absl::StrFormat("%9.2f %5.1f%% %7.1f %6.0f %9.2f %s  %s %s %s", r.us,
                        (r.us_p90 - r.us_p10) / r.us * 100, r.tflops(), r.gb_per_s(), r.floor_us,
                        Percent(ShareOfFloor(r, best_tensorwise_tflops)),
                        Ratio(r.cublaslt_block_us, r.us), Ratio(r.cublaslt_tensorwise_us, r.us),
                        Ratio(r.cublaslt_bf16_us, r.us)));
  } else {
    absl::StrAppend(&out, absl::StrFormat("%-69s", "right; not timed"));
  }
  absl::StrAppend(&out, absl::StrFormat("  %8.1e  %s (%s)\n", r.calc_diff, r.kernel, r.reason));
  if (r.outcome == Outcome::kOk && !r.message.empty()) {
    absl::StrAppend(&out, "    ", r.message, "\n");
  }
  if (r.variants_timed > 0 && !r.best.empty()) {
    const double best = r.best.front().us;
    absl::StrAppend(&out,
                    absl::StrFormat("    of %d variants: choice %s of the best, model %s (%s)\n",
                                    r.variants_timed, Ratio(r.us, best), Ratio(r.model_us, best),
                                    r.model_kernel));
    const int shown = std::min<int>(listed, r.best.size());
    for (int i = 0; i < shown; ++i) {
      absl::StrAppend(&out, absl::StrFormat("    %9.2f us  %s\n", r.best[i].us, r.best[i].kernel));
    }
  }
  return out;
}

std::string QuantizeTable(const RunResult& run) {
  std::string out = absl::StrFormat("%-13s %10s %9s %6s %7s %10s %9s %8s\n", "rows x k", "block",
                                    "us", "spread", "GB/s", "of copying", "floor us", "error");
  for (const QuantizeResult& q : run.quantize) {
    absl::StrAppend(&out,
                    absl::StrFormat("%-13s %10s %9.2f %5.1f%% %7.0f     %s %9.2f %8.1e%s\n",
                                    absl::StrCat(q.rows, "x", q.k), q.block, q.us,
                                    q.us > 0 ? (q.us_p90 - q.us_p10) / q.us * 100 : 0, q.gb_per_s(),
                                    Percent(run.copy_gb_s > 0 ? q.gb_per_s() / run.copy_gb_s : 0),
                                    q.floor_us, q.rel_error, q.right ? "" : "  WRONG"));
  }
  absl::StrAppend(&out, absl::StrFormat("copy of 512 MiB: %.0f GB/s\n", run.copy_gb_s));
  return out;
}

std::string SummaryTable(const RunResult& run) {
  const Summary summary = Summarize(run);
  std::string out = absl::StrFormat(
      "\nGeometric means of the other's time over ours; share of the memory floor is a mean.\n"
      "%-15s %6s %9s %8s %8s %8s %8s %8s\n",
      "group", "shapes", "floor", "block", "tensor", "bf16", "choice", "model");
  for (const Group& g : summary.groups) {
    absl::StrAppend(&out,
                    absl::StrFormat("%-15s %6d    %s   %s   %s   %s   %s   %s\n", g.name, g.shapes,
                                    Percent(g.share_of_floor), Ratio(g.block_ratio, 1),
                                    Ratio(g.tensorwise_ratio, 1), Ratio(g.bf16_ratio, 1),
                                    Ratio(g.choice_ratio, 1), Ratio(g.model_ratio, 1)));
  }
  int counts[5] = {};
  for (const ShapeResult& r : run.shapes) ++counts[static_cast<int>(r.outcome)];
  absl::StrAppend(
      &out, absl::StrFormat("%d shapes: %d ok, %d wrong, %d refused, %d failed, "
                            "%d skipped; best tensor-wise rate %.0f TFLOP/s, copy "
                            "%.0f GB/s, timed by %s\n",
                            run.shapes.size(), counts[0], counts[1], counts[2], counts[3],
                            counts[4], summary.best_tensorwise_tflops, run.copy_gb_s, run.method));
  return out;
}

}  // namespace gemmd::kernels::bench
