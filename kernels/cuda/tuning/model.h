// What a kernel of the pool should take on a problem: for shapes that nobody measured, and for
// admission. A handful of rates and costs, one for each thing that can be the bottleneck, and a
// correction of them by measured times (model_correction.h). It has to rank kernels rightly, not to
// be exact.

#pragma once

#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/tuning/model_correction.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Fitted together to the fastest kernels (1008 times) of 144 shapes on an H200 with a cold L2,
// where no other source is named. Chip-wide rates are of 132 SMs; clocks are of an SM.
struct ModelConstants {
  // Measured: 1 us to start, 3 to 4 us until the first data come through an L2 full of dirty lines,
  // of which the ring's latency below counts some.
  double launch_seconds = 3.6e-6;
  double hbm_bytes_per_s = 4.06e12;
  // Stages of 128 bytes a row reach less of it than those of 256.
  double short_run_rate = 0.92;
  // From L2 into all SMs together, and into one. Measured with copies alone: 36 to 43 bytes a clock
  // into each of 132 SMs, 64 into one of few, 62 where two share a copy.
  double l2_bytes_per_s = 9.5e12;
  // Of that, where operands are FP32's parts, of which each comes once for each product. On 250
  // shapes it takes the regret from 3.8 % to 2.6 %.
  double parts_l2_rate = 0.6;
  // Requests of L2 for a row of 128 bytes that begins within a line, as they cost: ten kernels on
  // seven shapes of BF16, 5.9e12 to 6.7e12 bytes a second where all rows do.
  double misaligned_requests = 1.5;
  double sm_bytes_per_clock = 48;
  // From a TMA request to its bytes: a ring of s stages cannot turn around faster than this / s.
  double load_latency_seconds = 1.02e-6;
  // Short problems run at one clock; long ones, which reach the chip's power limit, near the other;
  // those of so many operations half way between. Measured, 1.8 to 1.9 GHz and 1.5 to 1.6 GHz.
  double clock_hz = 1.8e9;
  double hot_clock_hz = 1.55e9;
  double hot_flops = 2e11;
  // WGMMA reads both of its sides from shared memory; measured, that is no limit from 64 columns
  // on.
  double wgmma_bytes_per_clock = 200;
  // Accumulators scaled and added a clock by an SM of 128 FP32 lanes, as the fit has it.
  double promoted_per_clock = 136;
  // The part of promotion that multiplication does not hide: with two sets of accumulators, with
  // three warpgroups that take turns, with two, with one.
  double exposed_pipelined = 0.1;
  double exposed_three = 0.29;
  double exposed_two = 0.84;
  double exposed_one = 1.0;
  // Barriers, issue and the latency of the chain, each k block: a warpgroup alone, which was seen
  // to take 250 clocks with 16 columns; several.
  double alone_clocks = 123;
  // The same where accumulators are the results, of which two k blocks are under way.
  double direct_clocks = 10;
  double turns_clocks = 29;
  // Tail of a tile: rounding, staging, and the store at an SM's own rate.
  double tile_seconds = 0.12e-6;
  double store_bytes_per_s = 80e9;
  double unaligned_store_factor = 4;  // stores one by one instead of bulk copies
  // A split: two cluster barriers, and partial sums that cross between SMs. Measured, 1.2 to 2 us
  // in all; the fit makes large tiles pay more than what crosses.
  double split_seconds = 0.69e-6;
  double part_seconds = 0.1e-6;  // each CTA more to wait for
  double exchange_bytes_per_clock = 7;
  // Stream-k: sums wait for each other, and cross by way of L2, once out and once in.
  double stream_seconds = 1.5e-6;
  double partial_bytes_per_clock = 40;
  // A CTA that follows another one on its SM (grids of a split are not persistent).
  double restart_seconds = 1.5e-6;
  // CTAs that multicast to each other run in step, and wait for the slowest.
  double multicast_slowdown = 1.005;
};

// Of an SM that does its part of so many operations.
double ClockHz(double flops, const ModelConstants& constants = {});

// Seconds of `variant` on `problem`, which it must be able to serve (legality.h), by the rates
// alone.
double RoughSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device, const ModelConstants& constants = {});

// Of a kernel whose RoughSeconds are `rough_seconds`.
ModelFeatures FeaturesOf(const GemmVariant& variant, const MatmulProblem& problem,
                         const DeviceTraits& device, double rough_seconds);

// Those seconds corrected; never below what the problem's bytes and flops take, nor below
// LeastOfRough() of the rough ones.
double CorrectedSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                        const DeviceTraits& device, double rough_seconds);
double LeastOfRough();

// RoughSeconds, corrected.
double ModelSeconds(const GemmVariant& variant, const MatmulProblem& problem,
                    const DeviceTraits& device);

// Clusters of `cluster_size` CTAs that are at work at once. A cluster lives within one GPC, so
// fewer than the SMs would hold; GPUs of one model may differ by one.
int ClustersAtOnce(const DeviceTraits& device, int cluster_size, int ctas_per_sm);

}  // namespace gemmd::kernels::cuda
