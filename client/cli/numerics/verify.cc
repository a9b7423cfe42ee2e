#include "client/cli/numerics/verify.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace gemmd::cli {
namespace {

using files::DType;

constexpr int64_t kColumns = 8;      // of D in one pass of the inner loop: fills SSE registers
constexpr int64_t kPanelRows = 512;  // rows of A held in float64 at a time

// What one thread has seen; added up at the end.
struct Sums {
  double error2 = 0;
  double reference2 = 0;
  double max_error = 0;
  int64_t nonfinite_wrong = 0;
  int64_t nonfinite_right = 0;

  void Add(const Sums& other) {
    error2 += other.error2;
    reference2 += other.reference2;
    max_error = std::max(max_error, other.max_error);
    nonfinite_wrong += other.nonfinite_wrong;
    nonfinite_right += other.nonfinite_right;
  }
};

double LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504;
    case DType::kBf16:
      return 3.3895313892515355e38;
    default:
      return std::numeric_limits<float>::max();
  }
}

// The result type's view of a value: past its largest finite one it is infinite (half a unit in the
// last place of grace, within which rounding may go either way, is left to the caller).
bool IsFiniteIn(DType dtype, double value) { return std::abs(value) <= LargestFinite(dtype); }

void Compare(DType dtype, double got, double want, Sums& sums) {
  const bool got_finite = std::isfinite(got);
  const bool want_finite = IsFiniteIn(dtype, want);
  if (got_finite && want_finite) {
    const double error = got - want;
    sums.error2 += error * error;
    sums.reference2 += want * want;
    sums.max_error = std::max(sums.max_error, std::abs(error));
    return;
  }
  if (std::isnan(want)) {
    (std::isnan(got) ? sums.nonfinite_right : sums.nonfinite_wrong) += 1;
    return;
  }
  // At the edge of the range rounding decides: 1 % around it, infinite and large are both right.
  const double edge = LargestFinite(dtype);
  const bool same_sign = std::signbit(got) == std::signbit(want);
  const bool near_edge = std::abs(want) > 0.99 * edge && std::abs(want) < 1.01 * edge;
  const bool both_infinite = !want_finite && std::isinf(got);
  const bool right = same_sign && !std::isnan(got) && (both_infinite || near_edge);
  (right ? sums.nonfinite_right : sums.nonfinite_wrong) += 1;
}

// acc[c] = sum over k of a[k] * b[k][c]. A fixed inner width without a reduction: vectorised
// without -ffast-math, and the order of additions stays that of the loop.
void DotColumns(const double* a, const double* b, int64_t k, double* acc) {
  double sum[kColumns] = {};
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < kColumns; ++c) sum[c] += a[i] * b[i * kColumns + c];
  }
  std::copy(sum, sum + kColumns, acc);
}

// Some rows of one batch entry's D, their A rows already in float64.
class Panel {
 public:
  Panel(const VerifyProblem& problem, int64_t batch, std::span<const int64_t> rows)
      : problem_(problem),
        batch_(batch),
        rows_(rows.begin(), rows.end()),
        a_(rows.size() * problem.k) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      DequantizeRow(problem.a, batch, rows_[i], std::span(a_).subspan(i * problem.k, problem.k));
    }
    for (double value : a_) norm2_ += std::isfinite(value) ? value * value : 0;
  }

  double norm2() const { return norm2_; }

  // Compares D's columns [first, first + kColumns). `b` is scratch of k * kColumns, `row` of k.
  // Returns those B rows' squared norm.
  double CheckColumns(int64_t first, std::vector<double>& b, std::vector<double>& row,
                      Sums& sums) const {
    const int64_t columns = std::min(kColumns, problem_.n - first);
    double b_norm2 = 0;
    std::fill(b.begin(), b.end(), 0.0);
    for (int64_t c = 0; c < columns; ++c) {
      DequantizeRow(problem_.b, batch_, first + c, row);
      for (int64_t i = 0; i < problem_.k; ++i) {
        b[i * kColumns + c] = row[i];
        b_norm2 += std::isfinite(row[i]) ? row[i] * row[i] : 0;
      }
    }
    for (size_t i = 0; i < rows_.size(); ++i) {
      double products[kColumns];
      DotColumns(a_.data() + i * problem_.k, b.data(), problem_.k, products);
      for (int64_t c = 0; c < columns; ++c) CheckElement(rows_[i], first + c, products[c], sums);
    }
    return b_norm2;
  }

 private:
  void CheckElement(int64_t row, int64_t column, double product, Sums& sums) const {
    const int64_t at = (batch_ * problem_.m + row) * problem_.n + column;
    double want = problem_.alpha == 0 ? 0 : problem_.alpha * product;
    if (problem_.beta != 0 && problem_.c) {
      want += problem_.beta * files::ElementAt(problem_.c->dtype, problem_.c->data, at);
    }
    if (problem_.bias) want += files::ElementAt(problem_.bias->dtype, problem_.bias->data, column);
    want = Activated(problem_.activation, want);
    Compare(problem_.d.dtype, files::ElementAt(problem_.d.dtype, problem_.d.data, at), want, sums);
  }

  const VerifyProblem& problem_;
  const int64_t batch_;
  const std::vector<int64_t> rows_;
  std::vector<double> a_;  // [rows, k]
  double norm2_ = 0;
};

int UsableCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Ascending rows of [0, total): all of them, or a random sample of `wanted`.
std::vector<int64_t> ChooseRows(int64_t total, int64_t wanted, uint64_t seed) {
  std::vector<int64_t> rows;
  if (wanted >= total) {
    rows.resize(total);
    for (int64_t i = 0; i < total; ++i) rows[i] = i;
    return rows;
  }
  std::mt19937_64 random(seed != 0 ? seed : std::random_device()());
  std::uniform_int_distribution<int64_t> any(0, total - 1);
  for (int64_t i = 0; i < wanted; ++i) rows.push_back(any(random));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace

double RelativeErrorBound(DType operand, DType result) {
  switch (result) {
    case DType::kBf16:
      return 5e-3;  // half a unit in the last of 8 bits is 3.9e-3
    case DType::kF16:
      return 1e-3;  // of 11 bits 4.9e-4
    default:
      return operand == DType::kE4m3 || operand == DType::kE5m2 ? 1e-3 : 1e-5;
  }
}

VerifyReport Verify(const VerifyProblem& problem, const VerifyOptions& options) {
  const int64_t total = problem.batch * problem.m;
  const double row_macs = static_cast<double>(problem.n) * problem.k;
  const auto wanted =
      static_cast<int64_t>(std::max(1.0, std::min<double>(total, options.max_macs / row_macs)));
  const std::vector<int64_t> rows = ChooseRows(total, wanted, options.seed);
  const int threads = options.threads > 0 ? options.threads : UsableCores();
  Sums sums;
  double scale2 = 0;  // sum of (||a_i|| ||b_j||)^2 over the elements checked
  for (size_t begin = 0; begin < rows.size();) {
    // A panel holds rows of one batch entry, as indices within it.
    const int64_t batch = rows[begin] / problem.m;
    std::vector<int64_t> panel_rows;
    while (begin < rows.size() && rows[begin] / problem.m == batch &&
           panel_rows.size() < kPanelRows) {
      panel_rows.push_back(rows[begin++] % problem.m);
    }
    const Panel panel(problem, batch, panel_rows);
    std::atomic<int64_t> next = 0;
    std::mutex mutex;  // guards sums and b_norm2
    double b_norm2 = 0;
    const auto work = [&] {
      Sums mine;
      double mine_norm2 = 0;
      std::vector<double> b(problem.k * kColumns), row(problem.k);
      for (int64_t j = next.fetch_add(kColumns); j < problem.n; j = next.fetch_add(kColumns)) {
        mine_norm2 += panel.CheckColumns(j, b, row, mine);
      }
      std::lock_guard lock(mutex);
      sums.Add(mine);
      b_norm2 += mine_norm2;
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
    scale2 += panel.norm2() * b_norm2;
  }
  VerifyReport report;
  report.rows_checked = static_cast<int64_t>(rows.size());
  report.rows_total = total;
  report.max_abs_error = sums.max_error;
  report.nonfinite_wrong = sums.nonfinite_wrong;
  report.nonfinite_right = sums.nonfinite_right;
  const double reference = std::sqrt(sums.reference2);
  const double error = std::sqrt(sums.error2);
  // Where sums cancel, no FP32 accumulation is exact relative to the small rest: 2^-22 of ||a||
  // ||b|| is granted on top. F16 results below its normal range keep an absolute step of 2^-24.
  double granted = std::ldexp(std::abs(problem.alpha) * std::sqrt(scale2), -22);
  if (problem.d.dtype == DType::kF16) {
    granted += std::ldexp(std::sqrt(static_cast<double>(rows.size()) * problem.n), -25);
  }
  report.relative_error = reference > 0 ? error / reference : error;
  report.bound = RelativeErrorBound(problem.a.dtype, problem.d.dtype);
  report.bound += reference > 0 ? granted / reference : granted;
  report.ok = report.nonfinite_wrong == 0 && report.relative_error <= report.bound;
  return report;
}

}  // namespace gemmd::cli
