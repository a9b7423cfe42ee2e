#include "kernels/cuda/weights_ahead.h"

#include <algorithm>

#include "kernels/cuda/gemm.h"

namespace gemmd::kernels::cuda {
namespace {

// Measured in a plan of 244 matmuls (kernels/README.md): of weights of 112 MiB, 2 to 6 MiB are
// alike; of those of 28 MiB it gained nothing.
constexpr int64_t kBytes = int64_t{4} << 20;
constexpr int64_t kFewestWeightBytes = int64_t{64} << 20;
constexpr int64_t kMostRowsOfA = 128;

}  // namespace

WeightsAhead AheadOf(const GemmVariant& variant, const GemmLaunch& launch) {
  const GemmConfig& shape = variant.shape();
  const Fp8GemmArgs& args = launch.args;
  const KSplit& split = launch.split;
  if (!launch.streams_b || args.batch != 1 || args.m > kMostRowsOfA ||
      args.n * args.k < kFewestWeightBytes) {
    return {};
  }
  WeightsAhead ahead = {.b = args.b,
                        .ldb = args.ldb,
                        .rows = static_cast<int>(args.n),
                        .parts = split.parts,
                        .step = split.step * shape.k_blocks,
                        .extra = split.extra,
                        .longer = shape.k_blocks};
  if (launch.clusters < launch.tiles.count) {  // the first of several rounds
    const int sharing = shape.skinny() ? shape.share_cols : shape.share_rows;
    ahead.rows = std::min(ahead.rows, launch.clusters * shape.block_n() * sharing);
  }
  const int last = split.parts - 1;
  const int64_t begin = last * ahead.step + std::min(last, ahead.extra) * ahead.longer;
  ahead.blocks = static_cast<int>(std::min({kBytes / kBlockK / ahead.rows / ahead.parts,
                                            int64_t{ahead.step}, args.k / kBlockK - begin}));
  return ahead.blocks > 0 ? ahead : WeightsAhead{};
}

}  // namespace gemmd::kernels::cuda
