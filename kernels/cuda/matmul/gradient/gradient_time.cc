// Which config of the gradient kernels serves a problem, and how long it takes.

#include <algorithm>
#include <cmath>

#include "kernels/cuda/matmul/gradient/gradient_launch.h"
#include "kernels/cuda/matmul/gradient/gradient_sides.h"
#include "kernels/cuda/tuning/model.h"

namespace gemmd::kernels::cuda {
namespace {

// Elements of D that the busiest SM computes, beyond the edges of D, too. Tiles of 128 rows count
// for more, as they are slower.
double ElementsOfAnSm(const AnyGemmArgs& g, int config, int sms) {
  constexpr double kShortTile = 0.9;
  const GemmConfig& shape = GradientEntryOf(g.type).configs[config];
  const ClusterTiles cut = ClusterTilesOf(g, shape);
  const double tiles = static_cast<double>(cut.rows) * static_cast<double>(cut.cols) *
                       static_cast<double>(g.batch) * shape.multicast();
  const double elements = std::ceil(tiles / sms) * shape.rows * shape.cols;
  return config == kGradientConfig ? elements / kShortTile : elements;
}

}  // namespace

int GradientConfig(const GradientProblem& problem) {
  // Tiles of 256 rows read a third less from L2, and were 7 to 12 % faster wherever there are rows;
  // sharing A is worth 1 to 3 % more.
  const AnyGemmArgs& g = problem.args;
  if (g.m <= 128) return kGradientConfig;
  return g.n > 128 ? kGradientSharedConfig : kGradientTallConfig;
}

double GradientSeconds(const GradientProblem& problem, double columns, double memory_bytes_per_s,
                       int sms) {
  // Of rounds that fill all SMs, at the clock of long runs, where peaks are 1.67 and 0.84 PFLOP/s.
  constexpr double kFp8Flops = 1.13e15, kDirectFlops = 8.0e14;
  constexpr double kMemoryShare = 0.8;  // of the rate
  constexpr double kStartSeconds = 3e-6;
  constexpr double kInFrontSeconds = 5e-6;  // the directory of groups, or copies of scales
  const AnyGemmArgs& g = problem.args;
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const double batch = static_cast<double>(g.batch);
  // Groups count as equally long: what they are is known to the device alone.
  const double multiplied =
      2 * ElementsOfAnSm(g, GradientConfig(problem), sms) * sms * columns / batch;
  const double flops = (IsFp8(g.type) ? kFp8Flops : kDirectFlops) * ClockHz(2 * m * n * columns) /
                       ModelConstants().hot_clock_hz;
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : 4e12;
  const double results = m * n * batch * ElementBytes(g.out);
  const double bytes = (m + n) * columns * ElementBytes(g.type) + results * (g.beta != 0 ? 2 : 1);
  const bool in_front = problem.grouped || CopiesOf(problem).scratch_bytes > 0;
  return kStartSeconds + (in_front ? kInFrontSeconds : 0) +
         std::max(multiplied / flops, bytes / (rate * kMemoryShare));
}

}  // namespace gemmd::kernels::cuda
