#include <algorithm>

#include "kernels/cpu/matmul/epilogue.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/panel.h"

namespace gemmd::kernels::cpu {
namespace {

// Blocks of D and of k. A panel of 1024 x 512 is 2 MiB, one core's L2; the tile of sums is 4 MiB.
// Smaller tiles convert b again more often, larger ones leave the cache.
constexpr int64_t kBlockM = 1024;
constexpr int64_t kBlockN = 1024;
constexpr int64_t kBlockK = 512;

double CeilDiv(double value, double divisor) {
  return static_cast<double>(static_cast<int64_t>((value + divisor - 1) / divisor));
}

void RunTile(const MatmulRun& run, const Tile& tile) {
  const RunContext& context = run.context;
  const int64_t k = run.problem.k;
  const BoundMatrix a = BindMatrix(run.op.a.values, context.bindings, tile.batch);
  const BoundMatrix b = BindMatrix(run.op.b.values, context.bindings, tile.batch);
  const BoundScales a_scales = BindScales(run.op.a, context.bindings, tile.batch);
  const BoundScales b_scales = BindScales(run.op.b, context.bindings, tile.batch);
  const int64_t deepest = std::min(k, kBlockK);
  float* a_storage = context.scratch.Get<float>(Scratch::kPanelA, PanelFloats(tile.rows, deepest));
  float* b_storage = context.scratch.Get<float>(Scratch::kPanelB, PanelFloats(tile.cols, deepest));
  float* sums = context.scratch.Get<float>(Scratch::kTile, tile.rows * tile.cols);
  for (int64_t k0 = 0; k0 < k; k0 += kBlockK) {
    if (k0 > 0 && context.Stopped()) return;
    const int64_t ks = std::min(kBlockK, k - k0);
    const Panel a_panel =
        LoadPanel(a, a_scales, {tile.row0, tile.rows, k0, ks}, a_storage, context);
    const Panel b_panel =
        LoadPanel(b, b_scales, {tile.col0, tile.cols, k0, ks}, b_storage, context);
    MultiplyPanels(a_panel, b_panel, tile.rows, tile.cols, ks, k0 == 0 ? 0.0f : 1.0f, sums,
                   tile.cols);
  }
  StoreTile(run, tile, sums, tile.cols);
}

}  // namespace

std::string PanelWhyNot(const MatmulProblem& p) {
  return p.a.dtype == DType::kI8 ? "a and b are i8; this kernel sums in FP32, which is not exact"
                                 : "";
}

double PanelSeconds(const MatmulProblem& p, const Machine& machine) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return SgemmSeconds(machine, 0, 0, 0);
  const double m = p.m;
  const double n = p.n;
  const double k = p.k;
  const double tiles = CeilDiv(m, kBlockM) * CeilDiv(n, kBlockN);
  const double converted = m * k * CeilDiv(n, kBlockN) + n * k * CeilDiv(m, kBlockM) + m * n;
  // A row of few elements costs a call, not its elements.
  const double calls = (m * CeilDiv(n, kBlockN) + n * CeilDiv(m, kBlockM)) * CeilDiv(k, 128) * 5e-9;
  // So does a row of D.
  const double stores = m * CeilDiv(n, 512) * 12e-9;
  const double strided = p.a.layout == Layout::kStrided || p.b.layout == Layout::kStrided ? 4 : 1;
  const double each =
      SgemmSeconds(machine, std::min<double>(m, kBlockM), std::min<double>(n, kBlockN), k) *
          std::max(m * n / (std::min<double>(m, kBlockM) * std::min<double>(n, kBlockN)), 1.0) +
      MoveSeconds(machine, strided * converted, p.bytes() / p.batch) +
      (calls + stores) / machine.threads + tiles * 0.2e-6;
  return p.batch * each;
}

void RunPanel(const MatmulRun& run) {
  if (run.product_is_zero()) return StoreWithoutProduct(run);
  ForEachTile(run, kBlockM, kBlockN, RunTile);
}

}  // namespace gemmd::kernels::cpu
