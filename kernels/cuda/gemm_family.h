// The seam between a family's .cu and the host code that launches it. Host only needs the CUDA
// runtime's and the driver's types, no kernel code.

#ifndef GEMMD_KERNELS_CUDA_GEMM_FAMILY_H_
#define GEMMD_KERNELS_CUDA_GEMM_FAMILY_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/gemm_config.h"

namespace gemmd::kernels::cuda {

// Everything a launch needs beside the config. Passed to the kernel by value.
struct GemmLaunch {
  CUtensorMap row_map;    // row side [k, rows, batch], box 128 x rows / share_rows
  CUtensorMap col_map;    // column side [k, cols, batch], box 128 x cols / share_cols
  CUtensorMap scale_map;  // A's scales [m, ceil(k/128), batch], box block_m x 1
  Fp8GemmArgs args;
  int split = 1;              // CTAs of a cluster that divide k among them
  int raster = 8;             // row-side tiles in a band of the tile order
  int clusters = 1;           // clusters in the grid; grid = clusters * multicast * split
  bool programmatic = false;  // launch may overlap the previous kernel's end
};

// One .cu: its configs, and the launch of the i-th. Every config's kernel was given its shared
// memory limit by `prepare`, which is called once a device, before the first launch.
struct GemmFamilyEntry {
  const char* name;  // "sm90_fp8_tiled"
  const GemmConfig* configs;
  int num_configs;
  cudaError_t (*prepare)(int config);
  cudaError_t (*launch)(int config, const GemmLaunch& launch, cudaStream_t stream);
  // Clusters of this size that fit on the device at once.
  cudaError_t (*max_clusters)(int config, int cluster_size, int* clusters);
};

extern const GemmFamilyEntry kSm90Fp8Tiled;
extern const GemmFamilyEntry kSm90Fp8Skinny;
inline constexpr int kNumGemmFamilies = 2;
inline const GemmFamilyEntry* const kGemmFamilies[kNumGemmFamilies] = {&kSm90Fp8Tiled,
                                                                       &kSm90Fp8Skinny};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_GEMM_FAMILY_H_
