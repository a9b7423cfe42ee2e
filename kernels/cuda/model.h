// What a kernel of the pool should take on a problem: for shapes that nobody measured, and for
// admission. A handful of rates and costs, one for each thing that can be the bottleneck; it has to
// rank kernels rightly, not to be exact.

#ifndef GEMMD_KERNELS_CUDA_MODEL_H_
#define GEMMD_KERNELS_CUDA_MODEL_H_

#include "kernels/cuda/gemm.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Rates are of a chip with 132 SMs (H200) and scale with the SM count where they are an SM's.
struct ModelConstants {
  // A kernel that reads nothing takes 0.7 us; the first byte from HBM and the last store make the
  // rest. Both numbers fit the measured cold reads of 4 to 117 MB (3.3 to 32 us) within 10 %.
  double launch_seconds = 2.1e-6;
  double hbm_bytes_per_s = 3.8e12;
  // From L2 into all SMs together, and into one. Plain loads see about 5.5e12; the peers' best
  // figures imply 6e12, with tiles of 128 x 256 that share one side.
  double l2_bytes_per_s = 6e12;
  double sm_bytes_per_s = 85e9;
  // From a TMA request to its bytes: a ring of s stages cannot turn around faster than this / s.
  double load_latency_seconds = 0.9e-6;
  // The best FP8 figure measured, tensor-wise cuBLASLt, under the chip's power limit: 1554e12.
  double tensor_flops = 1550e12;
  double clock_hz = 1.755e9;
  // WGMMA reads both of its sides from shared memory: with few columns that is its limit.
  double wgmma_bytes_per_clock = 110;
  // Accumulators scaled and added a clock by an SM: 128 FP32 lanes, less the scales' own work.
  double promoted_per_clock = 100;
  // The part of the shorter of multiplication and promotion that stays visible: with two sets of
  // accumulators, with two warpgroups that take turns, with neither.
  double exposed_pipelined = 0.05;
  double exposed_turns = 0.2;
  double exposed_serial = 1.0;
  // Barriers and issue, for each k block of a CTA.
  double block_seconds = 30e-9;
  // CTAs that multicast to each other run in step, and wait for the slowest.
  double multicast_slowdown = 1.03;
  // Tail of a tile: the last chain, rounding, staging, and the store at an SM's own rate.
  double tile_seconds = 0.5e-6;
  double store_bytes_per_s = 70e9;
  double unaligned_store_factor = 4;  // stores one by one instead of bulk copies
  // A split: two cluster barriers, and partial sums that cross between SMs.
  double split_seconds = 0.8e-6;
  double exchange_bytes_per_s = 60e9;
  // A CTA that follows another one on its SM (grids of a split are not persistent).
  double restart_seconds = 1.5e-6;
};

// Seconds of `variant` on `problem`, which it must be able to serve (legality.h).
double ModelSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device, const ModelConstants& constants = {});

// Clusters of `cluster_size` CTAs that are at work at once; a cluster lives within one GPC.
int ClustersAtOnce(const DeviceTraits& device, int cluster_size, int ctas_per_sm);

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_MODEL_H_
