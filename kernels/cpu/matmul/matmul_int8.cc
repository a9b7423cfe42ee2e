#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/epilogue.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/panel.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kBlockM = 512;
constexpr int64_t kBlockN = 512;
// |a * b| <= 2^14, so 1024 of them stay within 2^24, up to which FP32 counts every integer: sgemm
// is exact in whatever order it adds.
constexpr int64_t kExactK = 1024;

// sums[j] += products[j] * a_factor * b_factors[j], in double.
GEMMD_ALWAYS_INLINE void AddScaledBody(const float* products, int64_t n, double a_factor,
                                       const double* b_factors, double* sums) {
  for (int64_t j = 0; j < n; ++j) sums[j] += products[j] * (a_factor * b_factors[j]);
}
GEMMD_ISA_CLONES(AddScaled,
                 (const float* products, int64_t n, double a_factor, const double* b_factors,
                  double* sums),
                 (products, n, a_factor, b_factors, sums))

bool HasBlocksAlongK(ScaleGranularity granularity) {
  return granularity == ScaleGranularity::kBlock1x128 ||
         granularity == ScaleGranularity::kBlock128x128;
}

// The depth of an exact chunk: within one scale block, where scales change along k.
int64_t ChunkOf(const MatmulProblem& p) {
  return HasBlocksAlongK(p.a.granularity) || HasBlocksAlongK(p.b.granularity) ? kScaleBlock
                                                                              : kExactK;
}

void RunTile(const MatmulRun& run, const Tile& tile) {
  const RunContext& context = run.context;
  Scratch& scratch = context.scratch;
  const int64_t k = run.problem.k;
  const int64_t chunk = std::min(k, ChunkOf(run.problem));
  const BoundMatrix a = BindMatrix(run.op.a.values, context.bindings, tile.batch);
  const BoundMatrix b = BindMatrix(run.op.b.values, context.bindings, tile.batch);
  const BoundScales a_scales = BindScales(run.op.a, context.bindings, tile.batch);
  const BoundScales b_scales = BindScales(run.op.b, context.bindings, tile.batch);
  float* a_storage = scratch.Get<float>(Scratch::kPanelA, PanelFloats(tile.rows, chunk));
  float* b_storage = scratch.Get<float>(Scratch::kPanelB, PanelFloats(tile.cols, chunk));
  float* products = scratch.Get<float>(Scratch::kTile, tile.rows * tile.cols);
  double* sums = scratch.Get<double>(Scratch::kAccumulator, tile.rows * tile.cols);
  double* b_factors = scratch.Get<double>(Scratch::kFactors, tile.cols);
  std::fill_n(sums, tile.rows * tile.cols, 0.0);
  for (int64_t k0 = 0; k0 < k; k0 += chunk) {
    if (k0 > 0 && context.Stopped()) return;
    const int64_t ks = std::min(chunk, k - k0);
    const Panel a_panel = LoadPanel(a, {}, {tile.row0, tile.rows, k0, ks}, a_storage, context);
    const Panel b_panel = LoadPanel(b, {}, {tile.col0, tile.cols, k0, ks}, b_storage, context);
    MultiplyPanels(a_panel, b_panel, tile.rows, tile.cols, ks, 0.0f, products, tile.cols);
    for (int64_t j = 0; j < tile.cols; ++j) b_factors[j] = b_scales.Factor(tile.col0 + j, k0);
    context.For(tile.rows, 128, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        AddScaled(products + i * tile.cols, tile.cols, a_scales.Factor(tile.row0 + i, k0),
                  b_factors, sums + i * tile.cols);
      }
    });
  }
  StoreTile(run, tile, sums, tile.cols);
}

}  // namespace

std::string Int8WhyNot(const MatmulProblem& p) {
  if (p.a.dtype == DType::kI8) return "";
  return absl::StrCat("a and b are ", Text(Name(p.a.dtype)), "; this kernel takes i8");
}

double Int8Seconds(const MatmulProblem& p, const Machine& machine) {
  const double m = p.m;
  const double n = p.n;
  const double k = p.k;
  const double chunks = std::max(1.0, k / static_cast<double>(ChunkOf(p)));
  const double converted = m * k * std::max(1.0, n / kBlockN) + n * k * std::max(1.0, m / kBlockM);
  const double added = chunks * m * n;
  return p.batch * (SgemmSeconds(machine, m, n, k) + chunks * 0.3e-6 + 8e-9 * (m + n) * chunks +
                    MoveSeconds(machine, converted + added, p.bytes() / p.batch + 20 * added));
}

void RunInt8(const MatmulRun& run) {
  if (run.product_is_zero()) return StoreWithoutProduct(run);
  ForEachTile(run, kBlockM, kBlockN, RunTile);
}

}  // namespace gemmd::kernels::cpu
