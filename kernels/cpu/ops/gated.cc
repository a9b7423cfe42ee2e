#include <algorithm>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/activate.h"
#include "kernels/cpu/ops/columns.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kSegment = 4096;  // columns of a row that a thread takes at least
constexpr int64_t kGrainElements = 1 << 15;
static_assert(kSegment % kColumnsAtOnce == 0, "no block lies in two runs of columns");

// One batch item.
struct Job {
  BoundMatrix src;
  BoundMatrix dst;
  BoundScales scales;  // none unless dst is E4M3
  int64_t period = 0;  // columns of gate before those of up
  bool alone = false;  // no ups
  GateMath math;
};

// The gates of dst's columns [col, col + n) as FP32, or, `behind` them by one period, the ups.
// `dense` holds kColumnsAtOnce elements of src.
void LoadHalf(const Job& job, int64_t row, int64_t col, int64_t n, int64_t behind, std::byte* dense,
              float* out) {
  const BoundMatrix& src = job.src;
  const int size = SizeBytes(src.dtype);
  if (job.period == 1 && !job.alone) {  // a run of every other column
    Gather(size, src.At(row, 2 * col + behind), 2 * src.col_stride, n, dense);
    return ToF32(src.dtype, dense, n, out);
  }
  for (int64_t done = 0; done < n;) {
    const int64_t block = (col + done) / job.period;
    const int64_t offset = (col + done) % job.period;
    const int64_t run = std::min(job.period - offset, n - done);
    const std::byte* from = src.At(row, (2 * block + behind) * job.period + offset);
    if (src.col_stride != 1) {
      Gather(size, from, src.col_stride, run, dense);
      from = dense;
    }
    ToF32(src.dtype, from, run, out + done);
    done += run;
  }
}

void RunColumns(const Job& job, int64_t row, int64_t begin, int64_t end) {
  alignas(64) std::byte dense[kColumnsAtOnce * 4];
  alignas(64) float values[kColumnsAtOnce];
  alignas(64) float up[kColumnsAtOnce];
  for (int64_t col = begin; col < end; col += kColumnsAtOnce) {
    const int64_t n = std::min(kColumnsAtOnce, end - col);
    LoadHalf(job, row, col, n, 0, dense, values);
    if (job.alone) {
      ActivateGates(job.math, n, values);
    } else {
      LoadHalf(job, row, col, n, 1, dense, up);
      MultiplyGated(job.math, up, n, values);
    }
    StoreColumns(job.dst, job.scales, row, col, n, values, dense);
  }
}

Job BindJob(const GatedOp& op, const RunContext& context, int64_t batch) {
  Job job{BindMatrix(op.src, context.bindings, batch),
          BindMatrix(op.dst, context.bindings, batch),
          {},
          op.period,
          op.alone,
          {op.activation, op.alpha, op.limit, op.up_offset}};
  if (job.period == 0) job.period = job.dst.cols;
  if (op.scales) {
    job.scales = BindScales(*op.scales, ScaleGranularity::kBlock1x128, op.src.shape.rank == 3,
                            context.bindings, batch);
  }
  return job;
}

}  // namespace

void RunOp(const GatedOp& op, const RunContext& context) {
  const Dims& shape = op.dst.shape;
  const int64_t batches = shape.rank == 3 ? shape[0] : 1;
  const int64_t rows = shape[shape.rank - 2];
  const int64_t columns = shape[shape.rank - 1];
  if (batches == 0 || rows == 0 || columns == 0) return;
  const int64_t segments = (columns + kSegment - 1) / kSegment;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::min(columns, kSegment));
  context.For(batches * rows * segments, grain, [&](int64_t begin, int64_t end) {
    int64_t bound = -1;
    Job job;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t line = i / segments;
      if (const int64_t batch = line / rows; batch != bound) {
        bound = batch;
        job = BindJob(op, context, batch);
      }
      const int64_t first = i % segments * kSegment;
      RunColumns(job, line % rows, first, std::min(first + kSegment, columns));
    }
  });
}

}  // namespace gemmd::kernels::cpu
