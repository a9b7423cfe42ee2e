// The seam between a family's .cu and the host code that launches it. Host only needs the CUDA
// runtime's and the driver's types, no kernel code.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/sm90/gemm_args.h"
#include "kernels/cuda/sm90/gemm_config.h"
#include "kernels/cuda/sm90/tile_grid.h"

namespace gemmd::kernels::cuda {

// CTAs of a cluster that divide k among them: part p takes stages [p * step + min(p, extra), ...),
// and adds up chunks [chunks[p], chunks[p + 1]) of the tile.
struct KSplit {
  int parts = 1;
  int step = 0;
  int extra = 0;
  uint8_t chunks[kMaxClusterSize + 1] = {};
  // Where in its ring part p takes in the others' sums: the stages from inbox[p] on, which it has
  // read for the last time after inbox_free[p] of its stages (not above 0: it never needs them).
  uint8_t inbox[kMaxClusterSize] = {};
  int inbox_free[kMaxClusterSize] = {};
};

// Rows of a box of D that goes to the copy engine, a sub-tile's; it has GemmConfig::store_cols()
// columns.
inline constexpr int kStoreRows = 64;

// Everything a launch needs beside the config. Passed to the kernel by value.
struct GemmLaunch {
  CUtensorMap row_map;    // row side; dimensions and boxes: sm90_fp8_producer.cuh
  CUtensorMap col_map;    // column side
  CUtensorMap scale_map;  // A's scales, [batch, ceil(k/128), 1, m], if they are promoted by
  CUtensorMap store_map;  // D, [batch, 1, m, n], if stores_by_copy
  GemmArgs args;
  TileGrid tiles;
  // What the producer wants first lies in as few lines as can be: cold, each takes half a
  // microsecond.
  bool one_b = false;      // every batch multiplies one B: args.b_batch is 0
  bool streams_b = false;  // all readers of a part of B come at one time: L2 is to keep D rather
  int k_blocks = 1;        // of 128 bytes
  Divisor cluster_ctas;    // multicast * split.parts
  int clusters = 1;        // in the grid, those without a tile included; grid = clusters *
                           // cluster_ctas
  bool stores_by_copy = false;  // D's tiles leave by the copy engine
  bool programmatic = false;    // launch may overlap the previous kernel's end
  bool adjusts = false;         // of a kernel that finishes: OnlyAdjusts() or nothing, in registers
  bool rounds = false;          // of a kernel that finishes: nothing but rounding is asked for
  KSplit split;
  CUtensorMap add_map;  // C, [batch, 1, m, n], if it comes by the ring
  int add_stages = 0;   // of the ring, for a tile of C; 0: it does not come so
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
  // The same configs' kernels for what NeedsFinish(). No family of the pool.
  const GemmFamilyEntry* finishing;
  // Likewise for a B along its rows, whatever else is asked for: of those that has_along_rows().
  const GemmFamilyEntry* along_rows;
  // And for an A along its rows beside it: of those that has_both_along_rows().
  const GemmFamilyEntry* both_along_rows;
};

extern const GemmFamilyEntry kSm90Fp8Tiled;
extern const GemmFamilyEntry kSm90Fp8Skinny;
extern const GemmFamilyEntry kSm90Bf16Tiled;
extern const GemmFamilyEntry kSm90Bf16Skinny;
extern const GemmFamilyEntry kSm90F16Tiled;
extern const GemmFamilyEntry kSm90F16Skinny;
extern const GemmFamilyEntry kSm90I8Tiled;
extern const GemmFamilyEntry kSm90I8Skinny;
extern const GemmFamilyEntry kSm90I8BlockTiled;
extern const GemmFamilyEntry kSm90I8BlockSkinny;
extern const GemmFamilyEntry kSm90Fp8RowTiled;
extern const GemmFamilyEntry kSm90Fp8RowSkinny;
extern const GemmFamilyEntry kSm90F32Tiled;
inline constexpr int kNumGemmFamilies = 13;
inline const GemmFamilyEntry* const kGemmFamilies[kNumGemmFamilies] = {
    &kSm90Fp8Tiled,    &kSm90Fp8Skinny,    &kSm90Bf16Tiled, &kSm90Bf16Skinny,   &kSm90F16Tiled,
    &kSm90F16Skinny,   &kSm90I8Tiled,      &kSm90I8Skinny,  &kSm90I8BlockTiled, &kSm90I8BlockSkinny,
    &kSm90Fp8RowTiled, &kSm90Fp8RowSkinny, &kSm90F32Tiled};

}  // namespace gemmd::kernels::cuda
