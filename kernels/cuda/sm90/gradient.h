// Products over groups of columns: gradients of weights. FP8 has a scale for each row of either
// side and 128 of k; BF16 and FP16 have none. Plain data: shared by host and device.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/sm90/gemm_args.h"
#include "kernels/cuda/sm90/gemm_config.h"
#include "kernels/cuda/sm90/tile_grid.h"

namespace gemmd::kernels::cuda {

// D[g] = alpha * A . B^T + beta * C[g], over the columns of group g: `sizes[g]` of them from
// `starts[g]` on, which is a multiple of 128 where there are scales. What stands behind them in
// their last k block is masked, values and all.
//
// Without `starts` every item of a batch has all k columns of its own A and B.
struct GradientLaunch {
  CUtensorMap row_map;        // A, [batch, 1, m, k], of bytes; boxes of a k block of columns
  CUtensorMap col_map;        // B, [batch, 1, n, k]; along rows both are [batch, 1, k, rows]
  CUtensorMap row_scale_map;  // of A, [batch, ceil(k/128), 1, m]
  CUtensorMap col_scale_map;  // of B, [batch, ceil(k/128), 1, n]
  CUtensorMap store_map;      // D, [groups, 1, m, n], in boxes of 64 rows of 128 bytes
  CUtensorMap c_map;          // C likewise, if `c_in_boxes`
  TileGrid tiles;             // its batch: groups
  Divisor cluster_ctas;
  int clusters = 1;  // in the grid
  const int32_t* starts = nullptr;
  const int32_t* sizes = nullptr;
  int m = 0;
  int n = 0;
  int k = 0;
  OutType out = OutType::kF32;
  // FP32 results are added to D where they arrive: beta is 1 and C is D.
  bool adds = false;
  float alpha = 1.0f;
  float beta = 0.0f;        // 0 if `adds`
  const void* c = nullptr;  // [groups, m, n], stride 1 along n; not read when beta is 0
  int64_t ldc = 0;
  int64_t c_batch = 0;
  bool c_in_boxes = false;  // the copy engine can read it
  // Groups of few columns are computed among the others (sm90_gradient_walk.cuh); with `sizes`.
  bool mixes = false;
  // D is C and beta 1: a group without columns stays as it is; with `sizes`.
  bool keeps = false;
  bool programmatic = false;
};

// Of FP8: which operands are E5M2; those that are not are E4M3. Of 16 bits: whether both operands
// lie along their rows, [k, rows], and not along k.
struct GradientTypes {
  bool a_e5m2 = false;
  bool b_e5m2 = false;
  bool along_rows = false;
};

struct GradientFamilyEntry {
  const char* name;  // "sm90_fp8_gradient"
  const GemmConfig* configs;
  int num_configs;
  cudaError_t (*prepare)(int config, GradientTypes types);
  cudaError_t (*launch)(int config, GradientTypes types, const GradientLaunch& launch,
                        cudaStream_t stream);
  // Clusters that fit on the device at once.
  cudaError_t (*max_clusters)(int config, GradientTypes types, int* clusters);
};
extern const GradientFamilyEntry kSm90Fp8Gradient;
extern const GradientFamilyEntry kSm90Bf16Gradient;
extern const GradientFamilyEntry kSm90F16Gradient;
inline constexpr char kGradientName[] = "sm90_fp8_gradient";
inline constexpr char kBf16GradientName[] = "sm90_bf16_gradient";
inline constexpr char kF16GradientName[] = "sm90_f16_gradient";
inline constexpr int kGradientConfig = 0;        // 128 x 128
inline constexpr int kGradientTallConfig = 1;    // 256 x 128
inline constexpr int kGradientSharedConfig = 2;  // the same, A shared by two CTAs

}  // namespace gemmd::kernels::cuda
