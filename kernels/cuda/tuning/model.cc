#include "kernels/cuda/tuning/model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr double kReferenceSms = 132;  // what ModelConstants' chip-wide rates were taken with
// Clusters of 1, 2, .. 8 CTAs that 132 SMs run at once, one CTA an SM. Seen in the times of 16,940
// pairs of kernel and shape on an H200: with one cluster more the time steps up by a wave. GPCs
// have unlike numbers of SMs, and what is left of one is no use to a cluster.
constexpr int kClustersOf132[kMaxClusterSize] = {132, 66, 39, 30, 22, 18, 15, 15};

// Of FP8's stream-k: teams are at different k, and each reads A from memory again for each of its
// tiles where L2 does not hold all of it. Where CTAs have few tiles that is little, and whole tiles
// would leave more SMs idle.
constexpr double kStreamedInL2 = 32e6;
constexpr double kMostStreamRounds = 2;

double Ceiling(double value, double divisor) { return std::ceil(value / divisor); }

// A maximum without its edge: what is close to the bottleneck costs something too. Keeps kernels
// that share one bottleneck apart.
double Worst(std::initializer_list<double> seconds) {
  double sum = 0;
  for (double x : seconds) {
    const double square = x * x;
    const double fourth = square * square;
    sum += fourth * fourth;
  }
  return std::sqrt(std::sqrt(std::sqrt(sum)));
}

// Multiply-adds of an SM a clock.
double MacsPerClock(const GemmConfig& c) { return 4096.0 / c.element_bytes(); }

// How a variant divides a problem among CTAs.
struct Division {
  double groups;     // cluster-tiles
  double at_once;    // clusters that run at the same time
  double cluster;    // CTAs of one
  double k_blocks;   // of one CTA and tile; of stream-k, of all its tiles
  double tiles = 1;  // of stream-k: those of one CTA, not all of them whole

  Division(const GemmVariant& variant, const MatmulProblem& problem, const DeviceTraits& device) {
    const GemmConfig& c = variant.shape();
    const double row_extent = c.skinny() ? problem.n : problem.m;
    const double col_extent = c.skinny() ? problem.m : problem.n;
    groups = Ceiling(row_extent, c.rows * c.share_cols) *
             Ceiling(col_extent, c.cols * c.share_rows) * problem.batch;
    const int size = c.multicast() * variant.split;
    cluster = size;
    at_once = std::max(1, ClustersAtOnce(device, size, c.ctas_per_sm));
    const double stages = Ceiling(static_cast<double>(c.k_blocks_of(problem.k)), c.k_blocks);
    const int products = c.products();  // which stay together
    k_blocks = Ceiling(stages / products, variant.split) * products * c.k_blocks;
    if (!variant.streams_k()) return;
    const auto extent = [](double x, int tile) { return static_cast<int64_t>(Ceiling(x, tile)); };
    const StreamTeams teams =
        TeamsOf(c, extent(problem.m, c.block_m()), extent(problem.n, c.block_n()) * problem.batch,
                static_cast<int64_t>(stages), device.sms);
    groups = at_once = teams.team * teams.teams;
    tiles = teams.longest / k_blocks;
    k_blocks = static_cast<double>(teams.longest);
  }
  double waves() const { return Ceiling(groups, at_once); }
};

// One k block in an SM's clocks: what its units are busy, and what a warpgroup takes from start to
// end, with those that share its tile beside it.
struct MathClocks {
  double busy;
  double chain;

  MathClocks(const GemmConfig& c, const ModelConstants& constants) {
    const double chains = c.rows / 64.0;
    const double operands = chains * (64 + c.cols) * kRowBytes / constants.wgmma_bytes_per_clock;
    const double multiply =
        std::max(1.0 * c.rows * c.cols * c.block_k() / MacsPerClock(c), operands);
    if (!c.promotes()) {  // the next k block is issued before this one is through
      busy = multiply;
      chain = multiply + constants.direct_clocks;
      return;
    }
    const double promote = c.rows * c.cols / constants.promoted_per_clock / c.products();
    const double exposed = c.double_accumulators() ? constants.exposed_pipelined
                           : c.groups > 2          ? constants.exposed_three
                           : c.groups > 1          ? constants.exposed_two
                                                   : constants.exposed_one;
    busy = std::max(multiply, promote);
    chain = multiply + exposed * promote +
            (c.groups > 1 ? constants.turns_clocks : constants.alone_clocks);
  }
};

// One k block of each of the CTAs in `clusters` clusters that run side by side, at `clock`.
double BlockSeconds(const GemmConfig& c, const MatmulProblem& problem, const Division& division,
                    double clusters, double clock, const DeviceTraits& device,
                    const ModelConstants& constants) {
  const double ctas = clusters * division.cluster;
  const int size = static_cast<int>(division.cluster);
  const double spread = std::max(1, ClustersAtOnce(device, size, 1));  // one CTA on an SM
  const double load = std::clamp<double>(Ceiling(clusters, spread), 1, c.ctas_per_sm);
  const double sms = device.sms / kReferenceSms;

  // In the SM: CTAs side by side, and k groups, share its units but not each other's waits.
  const MathClocks math(c, constants);
  const double into_sm = c.row_bytes() + c.col_bytes() + c.a_scale_bytes();
  const double clocks = Worst(
      {math.chain / c.k_groups, math.busy * load, into_sm * load / constants.sm_bytes_per_clock});

  const auto requests = [&](const OperandTraits& operand) {
    return operand.alignment_bytes % kLineBytes == 0 ? 1.0 : constants.misaligned_requests;
  };
  const OperandTraits &rows = c.skinny() ? problem.b : problem.a,
                      &cols = c.skinny() ? problem.a : problem.b;
  const double from_l2 = requests(rows) * c.row_bytes() / c.share_rows +
                         requests(cols) * c.col_bytes() / c.share_cols + c.a_scale_bytes();
  const double l2_rate =
      constants.l2_bytes_per_s * (c.products() > 1 ? constants.parts_l2_rate : 1);
  const double l2 = from_l2 * ctas / (l2_rate * sms);
  const double unique_per_block =
      problem.bytes() / (division.groups * division.cluster * division.k_blocks);
  const double run_rate = c.k_blocks > 1 ? 1 : constants.short_run_rate;
  const double hbm = unique_per_block * ctas / (constants.hbm_bytes_per_s * run_rate);
  const double latency = constants.load_latency_seconds / (c.stages * c.k_blocks);
  const double seconds = Worst({clocks / clock, l2, hbm, latency});
  return c.multicast() > 1 ? seconds * constants.multicast_slowdown : seconds;
}

// From the last k block of a tile to the first of the next, or to the end behind the `last` one.
double TileSeconds(const GemmVariant& variant, const MatmulProblem& problem, bool last,
                   const ModelConstants& constants) {
  const GemmConfig& c = variant.shape();
  const double elements = 1.0 * c.rows * c.cols / variant.split;
  // D's rows go out in bulk unless they are not of 16 bytes; FP32 is stored by the threads.
  const bool bulk =
      problem.d.dtype != DType::kF32 && problem.d.alignment_bytes % 16 == 0 && problem.n % 8 == 0;
  const double useful = std::min<double>(c.block_m(), problem.m) / c.block_m();
  double store = elements * useful * SizeBytes(problem.d.dtype) / constants.store_bytes_per_s;
  if (!bulk) store *= problem.d.dtype == DType::kF32 ? 2 : constants.unaligned_store_factor;
  const double add = problem.has_c ? store : 0;  // C comes as D goes
  // The other warpgroup multiplies meanwhile.
  if (c.alternates && !last) return 0;
  // The copy engine takes the tile while the next one multiplies.
  if (c.stores_tile && bulk && variant.split == 1 && !last) store = 0;
  // What the last stage still has to multiply once it is there.
  const double drain = MathClocks(c, constants).chain * c.blocks_of_group() / constants.clock_hz;
  double seconds = constants.tile_seconds + drain + store + add;
  if (variant.split > 1) {
    const double exchanged = elements * (variant.split - 1) * sizeof(float);
    seconds += constants.split_seconds + variant.split * constants.part_seconds +
               exchanged / constants.exchange_bytes_per_clock / constants.clock_hz;
  }
  return seconds / c.ctas_per_sm;  // one CTA's tail hides behind the other's work
}

}  // namespace

int ClustersAtOnce(const DeviceTraits& device, int cluster_size, int ctas_per_sm) {
  const int clusters = kClustersOf132[std::clamp(cluster_size, 1, kMaxClusterSize) - 1];
  return clusters * device.sms / static_cast<int>(kReferenceSms) * ctas_per_sm;
}

double ClockHz(double flops, const ModelConstants& constants) {
  const double heat = flops / (flops + constants.hot_flops);
  return constants.clock_hz + heat * (constants.hot_clock_hz - constants.clock_hz);
}

double RoughSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device, const ModelConstants& constants) {
  const GemmConfig& c = variant.shape();
  const Division division(variant, problem, device);
  const double waves = division.waves();
  const double last = division.groups - (waves - 1) * division.at_once;
  const double clock = ClockHz(problem.flops() * c.products(), constants);
  const auto wave_seconds = [&](double clusters) {
    return division.k_blocks *
           BlockSeconds(c, problem, division, clusters, clock, device, constants);
  };
  double seconds = constants.launch_seconds + wave_seconds(last) +
                   TileSeconds(variant, problem, /*last=*/true, constants);
  if (waves > 1) {
    seconds += (waves - 1) * (wave_seconds(division.at_once) +
                              TileSeconds(variant, problem, /*last=*/false, constants));
  }
  if (variant.split > 1) seconds += (waves - 1) * constants.restart_seconds;
  if (!variant.streams_k()) return seconds;
  seconds +=
      (std::ceil(division.tiles) - 1) * TileSeconds(variant, problem, /*last=*/false, constants);
  if (division.tiles == std::floor(division.tiles)) return seconds;
  // A tile of several CTAs: one gives its sums, another takes all the others'.
  const double crossings = 1 + std::ceil(std::max(1.0, 1 / division.tiles - 1));
  const double crossing = 1.0 * c.rows * c.cols * sizeof(float);
  return seconds + constants.stream_seconds +
         crossings * crossing / constants.partial_bytes_per_clock / clock;
}

ModelFeatures FeaturesOf(const GemmVariant& variant, const MatmulProblem& problem,
                         const DeviceTraits& device, double rough_seconds) {
  const GemmConfig& c = variant.shape();
  constexpr ModelConstants constants;
  const Division division(variant, problem, device);
  const double math =
      division.waves() * division.k_blocks * MathClocks(c, constants).busy / c.ctas_per_sm;
  const double memory = problem.bytes() / constants.hbm_bytes_per_s;
  const auto share = [](double extent, double tile) {
    return extent / (Ceiling(extent, tile) * tile);
  };
  const double features[] = {
      rough_seconds * 1e6,
      1.0 * variant.split,
      variant.streams_k() ? division.tiles : division.groups / division.at_once,
      division.waves(),
      (division.groups - (division.waves() - 1) * division.at_once) / division.at_once,
      division.k_blocks,
      1.0 * problem.m,
      1.0 * problem.n,
      1.0 * problem.k,
      1.0 * c.rows,
      1.0 * c.cols,
      division.cluster,
      division.groups * division.cluster / device.sms,
      share(problem.m, c.block_m()),
      problem.flops() / problem.bytes(),
      1.0 * c.k_blocks,
      1.0 * c.stages,
      1.0 * c.multicast(),
      1.0 * c.k_groups,
      1.0 * c.ctas_per_sm,
      1.0 * c.skinny(),
      1.0 * c.stores_tile,
      1.0 * c.share_cols,
      memory / rough_seconds,
      math / constants.clock_hz / rough_seconds,
      share(problem.n, c.block_n()),
      1.0 * variant.streams_k(),
      1.0 * problem.batch,
      1.0 * (problem.a.layout == Layout::kRowsContiguous) +
          (problem.b.layout == Layout::kRowsContiguous),
  };
  static_assert(std::size(features) == kModelFeatureCount);
  ModelFeatures result;
  std::copy(std::begin(features), std::end(features), result.begin());
  return result;
}

double LeastOfRough() { return std::exp(kLeastCorrection); }

double CorrectedSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                        const DeviceTraits& device, double rough_seconds) {
  constexpr ModelConstants constants;
  const double flops_per_clock = 2 * MacsPerClock(variant.shape());
  const double floor = std::max(problem.bytes() / constants.hbm_bytes_per_s,
                                variant.shape().products() * problem.flops() /
                                    (flops_per_clock * device.sms * constants.clock_hz));
  const bool rereads = variant.streams_k() && variant.shape().promotes() &&
                       1.0 * problem.m * problem.k > kStreamedInL2 &&
                       Division(variant, problem, device).tiles > kMostStreamRounds;
  const float correction =
      rereads
          ? kMostCorrection
          : CorrectionOf(FeaturesOf(variant, problem, device, rough_seconds), variant.shape().mma);
  return std::max(floor, rough_seconds * std::exp(correction));
}

double ModelSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device) {
  return CorrectedSeconds(variant, problem, device, RoughSeconds(variant, problem, device));
}

}  // namespace gemmd::kernels::cuda
