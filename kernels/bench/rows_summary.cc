#include "kernels/bench/rows_summary.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/statistics.h"

namespace gemmd::kernels::bench {
namespace {

constexpr RowRange kAllRows = {1, std::numeric_limits<int64_t>::max()};

Regret RegretOf(const std::vector<double>& over_best) {
  Regret regret;
  regret.shapes = static_cast<int>(over_best.size());
  regret.mean = Mean(over_best);
  regret.p99 = Percentile(over_best, 0.99);
  regret.most = Percentile(over_best, 1);
  return regret;
}

void Add(std::vector<double>& to, double over, double under, double less = 0) {
  if (over > 0 && under > 0) to.push_back(over / under - less);
}

RowsSummary Summarize(RowRange rows, const std::vector<ShapeResult>& results) {
  std::vector<double> tensorwise, block, model_tensorwise, choice, model;
  RowsSummary summary;
  summary.rows = rows;
  for (const ShapeResult& r : results) {
    if (r.outcome != Outcome::kOk || r.us <= 0) continue;
    if (!rows.contains(r.shape.m)) continue;
    ++summary.shapes;
    Add(tensorwise, r.cublaslt_tensorwise_us, r.us);
    Add(block, r.cublaslt_block_us, r.us);
    Add(model_tensorwise, r.cublaslt_tensorwise_us, r.model_us);
    if (r.best.empty()) continue;
    Add(choice, r.us, r.best.front().us, 1);
    Add(model, r.model_us, r.best.front().us, 1);
  }
  summary.tensorwise_ratio = GeometricMean(tensorwise);
  summary.block_ratio = GeometricMean(block);
  summary.least_block_ratio = Percentile(block, 0);
  summary.model_tensorwise_ratio = GeometricMean(model_tensorwise);
  summary.choice = RegretOf(choice);
  summary.model = RegretOf(model);
  return summary;
}

std::string Ratio(double ratio) { return ratio > 0 ? absl::StrFormat("%.3f", ratio) : "-"; }
std::string Percents(const Regret& r) {
  if (r.shapes == 0) return "-";
  return absl::StrFormat("%.1f %.1f %.1f", r.mean * 100, r.p99 * 100, r.most * 100);
}

}  // namespace

std::vector<RowsSummary> SummarizeRows(const RunResult& run) {
  std::vector<RowsSummary> summaries;
  for (const RowRange& rows : kRowRanges) {
    RowsSummary summary = Summarize(rows, run.shapes);
    if (summary.shapes > 0) summaries.push_back(summary);
  }
  if (!summaries.empty()) summaries.push_back(Summarize(kAllRows, run.shapes));
  return summaries;
}

std::string RowsTable(const RunResult& run) {
  std::string out = absl::StrFormat(
      "\nBy rows: geometric means of cuBLASLt's time over ours; percent longer than the pool's "
      "best (mean, 99th percentile, most).\n%-12s %6s %8s %8s %8s %10s  %-18s %-18s\n",
      "m", "shapes", "tensor", "block", "least", "model/tens", "choice", "model");
  for (const RowsSummary& s : SummarizeRows(run)) {
    const std::string rows =
        s.rows.most == kAllRows.most ? "all" : absl::StrCat(s.rows.least, "..", s.rows.most);
    absl::StrAppend(
        &out,
        absl::StrFormat("%-12s %6d %8s %8s %8s %10s  %-18s %-18s\n", rows, s.shapes,
                        Ratio(s.tensorwise_ratio), Ratio(s.block_ratio), Ratio(s.least_block_ratio),
                        Ratio(s.model_tensorwise_ratio), Percents(s.choice), Percents(s.model)));
  }
  return out;
}

}  // namespace gemmd::kernels::bench
