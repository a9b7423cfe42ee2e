// Layer and RMS norms. A row is read anew for each of its sums, which are taken in float64, and for
// its results: it stays in cache meanwhile.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/columns.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kLeastElements = 1 << 15;  // of a thread
constexpr int64_t kColumnsPerAsk = 1 << 20;  // of a long row: some milliseconds

// One batch item.
struct Rows {
  BoundMatrix src;
  BoundMatrix addend;  // without data: none, and no sum
  BoundMatrix sum;     // without data: not kept
  BoundMatrix dst;
  BoundScales scales;  // none unless dst is E4M3
  // FP32, a stride apart; null: none.
  const float* weight = nullptr;
  const float* bias = nullptr;
  int64_t weight_stride = 0;
  int64_t bias_stride = 0;
};

// x of some columns: src's, or the rounded sums.
void LoadSummed(const Rows& job, int64_t row, int64_t col, int64_t n, std::byte* dense,
                float* values) {
  LoadColumns(job.src, row, col, n, dense, values);
  if (job.addend.data == nullptr) return;
  alignas(64) float added[kColumnsAtOnce];
  LoadColumns(job.addend, row, col, n, dense, added);
  for (int64_t i = 0; i < n; ++i) values[i] += added[i];
  FromF32(job.src.dtype, values, n, dense);
  ToF32(job.src.dtype, dense, n, values);
}

// Calls fn(col, n, values) for a row's columns from left to right. Gives up once the run is
// stopped.
template <class Fn>
void ForColumns(const RunContext& context, const Rows& job, int64_t row, Fn fn) {
  alignas(64) std::byte dense[kColumnsAtOnce * 4];
  alignas(64) float values[kColumnsAtOnce];
  for (int64_t col = 0; col < job.src.cols; col += kColumnsAtOnce) {
    if (col > 0 && col % kColumnsPerAsk == 0 && context.Stopped()) return;
    const int64_t n = std::min(kColumnsAtOnce, job.src.cols - col);
    LoadSummed(job, row, col, n, dense, values);
    fn(col, n, values);
  }
}

void NormalizeRow(const RunContext& context, const Rows& job, bool centered, double epsilon,
                  int64_t row) {
  double sum = 0, squares = 0;
  if (centered) {
    ForColumns(context, job, row, [&](int64_t, int64_t n, const float* values) {
      for (int64_t i = 0; i < n; ++i) sum += values[i];
    });
  }
  const double mean = sum / static_cast<double>(job.src.cols);
  ForColumns(context, job, row, [&](int64_t, int64_t n, const float* values) {
    for (int64_t i = 0; i < n; ++i) {
      const double apart = values[i] - mean;
      squares += apart * apart;
    }
  });
  const double factor = 1 / std::sqrt(squares / static_cast<double>(job.src.cols) + epsilon);
  alignas(64) std::byte dense[kColumnsAtOnce * 4];
  ForColumns(context, job, row, [&](int64_t col, int64_t n, float* values) {
    // No other pass reads these columns again: the sum may be src or the addend.
    if (job.sum.data != nullptr) StoreColumns(job.sum, {}, row, col, n, values, dense);
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>((values[i] - mean) * factor);
      if (job.weight != nullptr) values[i] *= job.weight[(col + i) * job.weight_stride];
      if (job.bias != nullptr) values[i] += job.bias[(col + i) * job.bias_stride];
    }
    StoreColumns(job.dst, job.scales, row, col, n, values, dense);
  });
}

void BindVector(const std::optional<TensorRef>& vector, const Bindings& bindings,
                const float*& data, int64_t& stride) {
  if (!vector) return;
  data = reinterpret_cast<const float*>(Address(*vector, bindings));
  stride = vector->strides[0];
}

Rows BindRows(const NormalizeOp& op, const Bindings& bindings, int64_t batch) {
  Rows job{.src = BindMatrix(op.src, bindings, batch), .dst = BindMatrix(op.dst, bindings, batch)};
  if (op.addend) job.addend = BindMatrix(*op.addend, bindings, batch);
  if (op.sum) job.sum = BindMatrix(*op.sum, bindings, batch);
  if (op.scales) {
    job.scales = BindScales(*op.scales, ScaleGranularity::kBlock1x128, op.src.shape.rank == 3,
                            bindings, batch);
  }
  BindVector(op.weight, bindings, job.weight, job.weight_stride);
  BindVector(op.bias, bindings, job.bias, job.bias_stride);
  return job;
}

}  // namespace

void RunOp(const NormalizeOp& op, const RunContext& context) {
  const Dims& shape = op.dst.shape;
  const int64_t batches = shape.rank == 3 ? shape[0] : 1;
  const int64_t rows = shape[shape.rank - 2];
  const int64_t columns = shape[shape.rank - 1];
  if (batches == 0 || rows == 0 || columns == 0) return;
  const int64_t grain = std::max<int64_t>(1, kLeastElements / columns);
  context.For(batches * rows, grain, [&](int64_t begin, int64_t end) {
    int64_t bound = -1;
    Rows job;
    for (int64_t line = begin; line < end; ++line) {
      if (const int64_t batch = line / rows; batch != bound) {
        bound = batch;
        job = BindRows(op, context.bindings, batch);
      }
      NormalizeRow(context, job, op.centered, op.epsilon, line % rows);
    }
  });
}

}  // namespace gemmd::kernels::cpu
