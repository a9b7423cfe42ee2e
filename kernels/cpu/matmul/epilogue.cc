#include "kernels/cpu/matmul/epilogue.h"

#include <algorithm>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops/activate.h"
#include "kernels/cpu/ops/convert.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;  // columns at a time, on the stack
constexpr int64_t kGrainElements = 1 << 17;

template <class Acc>
struct Finish {
  const Acc* acc;     // null: zeros
  const float* c;     // null: none
  const float* bias;  // null: none
  Acc alpha;
  Acc beta;
  bool relu;
};

template <class Acc>
GEMMD_ALWAYS_INLINE void FinishAny(const Finish<Acc>& f, int64_t n, float* out) {
  alignas(64) Acc x[kChunk];
  if (f.acc == nullptr) {
    for (int64_t i = 0; i < n; ++i) x[i] = 0;
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = f.alpha * f.acc[i];
  }
  if (f.c != nullptr) {
    for (int64_t i = 0; i < n; ++i) x[i] += f.beta * f.c[i];
  }
  if (f.bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) x[i] += f.bias[i];
  }
  if (f.relu) {
    // Written so that NaN, for which every comparison is false, stays NaN.
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? Acc{0} : x[i];
  }
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

GEMMD_ALWAYS_INLINE void FinishFloatBody(const Finish<float>& f, int64_t n, float* out) {
  FinishAny(f, n, out);
}
GEMMD_ALWAYS_INLINE void FinishDoubleBody(const Finish<double>& f, int64_t n, float* out) {
  FinishAny(f, n, out);
}
GEMMD_ISA_CLONES(FinishFloat, (const Finish<float>& f, int64_t n, float* out), (f, n, out))
GEMMD_ISA_CLONES(FinishDouble, (const Finish<double>& f, int64_t n, float* out), (f, n, out))

void FinishRow(const Finish<float>& f, int64_t n, float* out) { FinishFloat(f, n, out); }
void FinishRow(const Finish<double>& f, int64_t n, float* out) { FinishDouble(f, n, out); }

// A run of elements of any dtype and stride as FP32; `dense` holds kChunk elements.
void LoadRun(DType dtype, const std::byte* src, int64_t stride, int64_t n, std::byte* dense,
             float* out) {
  if (stride == 1) return ToF32(dtype, src, n, out);
  Gather(SizeBytes(dtype), src, stride, n, dense);
  ToF32(dtype, dense, n, out);
}

template <class Acc>
void StoreColumns(const MatmulRun& run, const Tile& tile, const Acc* acc, int64_t ld,
                  int64_t row_begin, int64_t row_end, int64_t col, int64_t n) {
  const Bindings& bindings = run.context.bindings;
  const MatmulOp& op = run.op;
  const BoundMatrix d = BindMatrix(op.d, bindings, tile.batch);
  BoundMatrix c;
  if (run.problem.has_c) c = BindMatrix(*op.c, bindings, tile.batch);
  alignas(64) float out[kChunk];
  alignas(64) float c_row[kChunk];
  alignas(64) float bias[kChunk];
  alignas(64) std::byte dense[kChunk * 4];
  if (op.bias) {
    const int64_t stride = op.bias->strides[0];
    const std::byte* src =
        Address(*op.bias, bindings) + (tile.col0 + col) * stride * SizeBytes(op.bias->dtype);
    LoadRun(op.bias->dtype, src, stride, n, dense, bias);
  }
  Finish<Acc> finish{
      nullptr, run.problem.has_c ? c_row : nullptr, op.bias ? bias : nullptr, op.alpha,
      op.beta, op.activation == Activation::kRelu};
  const bool activates = op.activation > Activation::kRelu;
  const bool direct = d.dtype == DType::kF32 && d.col_stride == 1;
  for (int64_t row = row_begin; row < row_end; ++row) {
    if (run.problem.has_c) {
      LoadRun(c.dtype, c.At(tile.row0 + row, tile.col0 + col), c.col_stride, n, dense, c_row);
    }
    if (acc != nullptr) finish.acc = acc + row * ld + col;
    std::byte* target = d.At(tile.row0 + row, tile.col0 + col);
    float* const finished = direct ? reinterpret_cast<float*>(target) : out;
    FinishRow(finish, n, finished);
    if (activates) Activate(op.activation, n, finished);
    if (direct) continue;
    if (d.col_stride == 1) {
      FromF32(d.dtype, out, n, target);
    } else {
      FromF32(d.dtype, out, n, dense);
      Scatter(SizeBytes(d.dtype), dense, n, target, d.col_stride);
    }
  }
}

template <class Acc>
void StoreAny(const MatmulRun& run, const Tile& tile, const Acc* acc, int64_t ld) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(tile.cols, 1));
  run.context.For(tile.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t col = 0; col < tile.cols; col += kChunk) {
      if (col % kGrainElements == kGrainElements - kChunk && run.context.Stopped()) return;
      StoreColumns(run, tile, acc, ld, begin, end, col, std::min(kChunk, tile.cols - col));
    }
  });
}

}  // namespace

void StoreTile(const MatmulRun& run, const Tile& tile, const float* acc, int64_t ld) {
  StoreAny(run, tile, acc, ld);
}

void StoreTile(const MatmulRun& run, const Tile& tile, const double* acc, int64_t ld) {
  StoreAny(run, tile, acc, ld);
}

void StoreWithoutProduct(const MatmulRun& run) {
  const MatmulProblem& p = run.problem;
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    if (run.context.StoppedBefore(batch, 1.0 * p.m * p.n)) return;
    StoreAny<float>(run, {batch, 0, p.m, 0, p.n}, nullptr, 0);
  }
}

void ForEachTile(const MatmulRun& run, int64_t rows, int64_t cols,
                 absl::FunctionRef<void(const MatmulRun&, const Tile&)> fn) {
  const MatmulProblem& p = run.problem;
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    if (run.context.StoppedBefore(batch, p.flops() / p.batch)) return;
    for (int64_t n0 = 0; n0 < p.n; n0 += cols) {
      for (int64_t m0 = 0; m0 < p.m; m0 += rows) {
        if (m0 + n0 > 0 && run.context.Stopped()) return;
        fn(run, {batch, m0, std::min(rows, p.m - m0), n0, std::min(cols, p.n - n0)});
      }
    }
  }
}

}  // namespace gemmd::kernels::cpu
