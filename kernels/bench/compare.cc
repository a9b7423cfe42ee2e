#include "kernels/bench/compare.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/statistics.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

const ShapeResult* Find(const RunResult& run, const Shape& shape) {
  for (const ShapeResult& result : run.shapes) {
    if (result.shape == shape) return &result;
  }
  return nullptr;
}

bool Timed(const ShapeResult& r) { return r.outcome == Outcome::kOk && r.us > 0; }

std::string Title(const RunResult& run) {
  return absl::StrCat(run.gpu, ", driver ", run.driver, ", ", run.date, ", commit ", run.commit,
                      ", timed by ", run.method);
}

}  // namespace

Comparison Compare(const RunResult& old_run, const RunResult& new_run) {
  Comparison out;
  std::vector<double> ratios, scaled_ratios;
  absl::StrAppend(&out.text, "old: ", Title(old_run), "\nnew: ", Title(new_run), "\n");
  if (old_run.gpu != new_run.gpu || old_run.method != new_run.method) {
    absl::StrAppend(&out.text, "note: the runs differ in GPU or in how they were timed\n");
  }
  absl::StrAppend(&out.text, absl::StrFormat("%-19s %9s %9s %7s %7s\n", "m x n x k", "old us",
                                             "new us", "old/new", "scaled"));
  for (const ShapeResult& now : new_run.shapes) {
    const ShapeResult* before = Find(old_run, now.shape);
    if (before == nullptr || !Timed(*before)) continue;
    if (!Timed(now)) {
      // What was skipped was not tried; everything else worked once and does not any more.
      const bool lost = now.outcome != Outcome::kSkipped && now.outcome != Outcome::kOk;
      out.regressions += lost;
      absl::StrAppend(&out.text,
                      absl::StrFormat("%-19s %9.2f %9s%s\n", ToString(now.shape), before->us,
                                      Text(Name(now.outcome)), lost ? "  REGRESSION" : ""));
      continue;
    }
    const double ratio = before->us / now.us;
    ratios.push_back(ratio);
    std::string scaled = "      -";
    if (before->cublaslt_tensorwise_us > 0 && now.cublaslt_tensorwise_us > 0) {
      scaled_ratios.push_back(ratio * now.cublaslt_tensorwise_us / before->cublaslt_tensorwise_us);
      scaled = absl::StrFormat("%7.3f", scaled_ratios.back());
    }
    const bool slower = now.us > before->us * (1 + Comparison::kTolerance);
    out.regressions += slower;
    absl::StrAppend(&out.text,
                    absl::StrFormat("%-19s %9.2f %9.2f %7.3f %s%s%s\n", ToString(now.shape),
                                    before->us, now.us, ratio, scaled, slower ? "  REGRESSION" : "",
                                    before->kernel == now.kernel
                                        ? ""
                                        : absl::StrCat("  ", before->kernel, " -> ", now.kernel)));
  }
  out.compared = static_cast<int>(ratios.size());
  out.speedup = GeometricMean(ratios);
  absl::StrAppend(&out.text,
                  absl::StrFormat("%d shapes, geometric mean %.3f", out.compared, out.speedup));
  if (!scaled_ratios.empty()) {
    absl::StrAppend(&out.text, absl::StrFormat(", scaled by tensor-wise cuBLASLt %.3f",
                                               GeometricMean(scaled_ratios)));
  }
  absl::StrAppend(&out.text, absl::StrFormat("; %d regressions beyond %.0f %%\n", out.regressions,
                                             Comparison::kTolerance * 100));
  return out;
}

}  // namespace gemmd::kernels::bench
