#include "kernels/cuda/model.h"

#include <algorithm>
#include <cmath>

namespace gemmd::kernels::cuda {
namespace {

constexpr double kReferenceSms = 132;  // what ModelConstants' chip-wide rates were taken with
constexpr int kSmsPerGpc = 16;         // Hopper: 16 or 18 enabled

double CeilDiv(double value, double divisor) { return std::ceil(value / divisor); }

// A maximum without its edge: what is close to the bottleneck costs something too. Keeps kernels
// that share one bottleneck apart.
double Worst(double a, double b, double c, double d) {
  const auto eighth = [](double x) {
    const double square = x * x;
    return square * square * square * square;
  };
  return std::sqrt(std::sqrt(std::sqrt(eighth(a) + eighth(b) + eighth(c) + eighth(d))));
}

// How a variant divides a problem among CTAs.
struct Division {
  double groups;    // cluster-tiles
  double at_once;   // clusters that run at the same time
  double cluster;   // CTAs of one
  double k_blocks;  // of one CTA and tile

  Division(const GemmVariant& variant, const MatmulProblem& problem, const DeviceTraits& device) {
    const GemmConfig& c = variant.shape();
    const double row_extent = c.skinny() ? problem.n : problem.m;
    const double col_extent = c.skinny() ? problem.m : problem.n;
    groups = CeilDiv(row_extent, c.rows * c.share_cols) *
             CeilDiv(col_extent, c.cols * c.share_rows) * problem.batch;
    const int size = c.multicast() * variant.split;
    cluster = size;
    at_once = std::max(1, ClustersAtOnce(device, size, c.ctas_per_sm));
    k_blocks = CeilDiv(CeilDiv(problem.k, kBlockK), variant.split);
  }
  double waves() const { return CeilDiv(groups, at_once); }
};

// Multiplication and promotion of one k block by a CTA that has its SM for itself.
double MathSeconds(const GemmConfig& c, const ModelConstants& constants) {
  const double flops = 2.0 * c.rows * c.cols * kBlockK;
  const double compute = flops / (constants.tensor_flops / kReferenceSms);
  const double chains = c.rows / 64.0 * c.col_halves;
  const double operand_clocks =
      chains * (64 + c.sub_cols()) * kBlockK / constants.wgmma_bytes_per_clock;
  const double multiply = std::max(compute, operand_clocks / constants.clock_hz);
  const double promote = c.rows * c.cols / constants.promoted_per_clock / constants.clock_hz;
  const double exposed = c.double_accumulators() ? constants.exposed_pipelined
                         : c.groups > 1          ? constants.exposed_turns
                                                 : constants.exposed_serial;
  return std::max(multiply, promote) + exposed * std::min(multiply, promote) +
         constants.block_seconds;
}

// One k block of each of the CTAs in `clusters` clusters that run side by side.
double BlockSeconds(const GemmConfig& c, const Division& division, double clusters,
                    double unique_bytes, const DeviceTraits& device,
                    const ModelConstants& constants) {
  const double ctas = clusters * division.cluster;
  const double load = std::clamp<double>(ctas / device.sms, 1, c.ctas_per_sm);
  const double sms = device.sms / kReferenceSms;

  const double into_sm = c.row_bytes() + c.col_bytes() + c.a_scale_bytes();
  const double from_l2 =
      1.0 * c.row_bytes() / c.share_rows + 1.0 * c.col_bytes() / c.share_cols + c.a_scale_bytes();
  const double l2 = std::max(from_l2 * ctas / (constants.l2_bytes_per_s * sms),
                             into_sm * load / constants.sm_bytes_per_s);
  const double unique_per_block =
      unique_bytes / (division.groups * division.cluster * division.k_blocks);
  const double hbm = unique_per_block * ctas / constants.hbm_bytes_per_s;
  const double latency = constants.load_latency_seconds / (c.stages * c.k_blocks);
  const double seconds = Worst(MathSeconds(c, constants) * load, l2, hbm, latency);
  return c.multicast() > 1 ? seconds * constants.multicast_slowdown : seconds;
}

// From the last k block of a tile to the first of the next.
double TileSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                   const ModelConstants& constants) {
  const GemmConfig& c = variant.shape();
  const double elements = 1.0 * c.rows * c.cols / variant.split;
  // D's rows go out in bulk unless they are not of 16 bytes; FP32 is stored by the threads.
  const bool bulk =
      problem.d.dtype != DType::kF32 && problem.d.alignment_bytes % 16 == 0 && problem.n % 8 == 0;
  const double useful = std::min<double>(c.block_m(), problem.m) / c.block_m();
  double store = elements * useful * SizeBytes(problem.d.dtype) / constants.store_bytes_per_s;
  if (!bulk) store *= problem.d.dtype == DType::kF32 ? 2 : constants.unaligned_store_factor;
  if (problem.has_c) store *= 2;
  double seconds = constants.tile_seconds + store;
  if (variant.split > 1) {
    seconds += constants.split_seconds +
               elements * (variant.split - 1) * sizeof(float) / constants.exchange_bytes_per_s;
  }
  return seconds / c.ctas_per_sm;  // one CTA's tail hides behind the other's work
}

}  // namespace

int ClustersAtOnce(const DeviceTraits& device, int cluster_size, int ctas_per_sm) {
  // SMs come in pairs, so that clusters of two waste none.
  if (cluster_size <= 2) return device.sms * ctas_per_sm / cluster_size;
  const int gpcs = std::max(1, device.sms / kSmsPerGpc);
  return gpcs * (device.sms * ctas_per_sm / gpcs / cluster_size);
}

double ModelSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device, const ModelConstants& constants) {
  const GemmConfig& c = variant.shape();
  const Division division(variant, problem, device);
  const double waves = division.waves();
  const double last = division.groups - (waves - 1) * division.at_once;
  const double unique_bytes = problem.bytes();
  const auto wave_seconds = [&](double clusters) {
    return division.k_blocks * BlockSeconds(c, division, clusters, unique_bytes, device, constants);
  };
  const double tile = TileSeconds(variant, problem, constants);
  double seconds = constants.launch_seconds + wave_seconds(last) + tile;
  if (waves > 1) seconds += (waves - 1) * (wave_seconds(division.at_once) + tile);
  if (variant.split > 1) seconds += (waves - 1) * constants.restart_seconds;
  return seconds;
}

}  // namespace gemmd::kernels::cuda
