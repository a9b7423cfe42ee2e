// The kernels that multiply, gate and quantise at once, as host code launches them: act(gate) * up
// leaves as E4M3 with scales of 1x128, and the product never reaches memory. Plain data: shared by
// host and device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/sm90/gemm_family.h"

namespace gemmd::kernels::cuda {

// Columns of the result that a tile has, which share a scale: its gates, and as many ups.
inline constexpr int kGateCols = 128;
// Rows of A in a box where they are columns of the product: of few rows no more is fetched.
inline constexpr int kGateRowsABox = 16;

// `gemm`: maps, args, k blocks and one_b.
struct GateLaunch {
  GemmLaunch gemm;
  GatedArgs gated;       // dst, scales and the formula; src is the accumulators
  int32_t n_tiles = 1;   // of the result's columns; of gates alone a tile has two blocks of them
  int32_t band = 1;      // tiles of rows that go through the weights together, for L2
  Divisor per_band;      // band * n_tiles
  Divisor band_rows;     // band
  Divisor period_tiles;  // tiles of gates that lie together, in front of as many of ups; 1 if alone
  Divisor item_tiles;    // tiles of rows of a matrix of A
};

struct GateFamilyEntry {
  const GemmConfig* configs;
  int num_configs;
  cudaError_t (*prepare)(int config, bool alone);
  cudaError_t (*launch)(int config, const GateLaunch& launch, int ctas, cudaStream_t stream);
};
extern const GateFamilyEntry kSm90Fp8Gate;
inline constexpr char kFp8GateName[] = "sm90_fp8_gate";
inline constexpr int kGateThinConfig = 0;  // up to 64 rows of A, weights on the row side
inline constexpr int kGateWideConfig = 1;  // A on the row side
inline constexpr int kGateFewConfig = 2;   // up to 16 rows of A

}  // namespace gemmd::kernels::cuda
