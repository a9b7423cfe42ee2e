// What lists of kernels are written in: a tile, and around it what sets it apart from a plain one.
// A config is one line, SharingRows(Storing(Tiled(256, 128, 3))). Its operand kind is the list's.

#pragma once

#include "kernels/cuda/sm90/gemm_config.h"

namespace gemmd::kernels::cuda {

// A tile of m x n of D, A's rows on WGMMA's row side: by three math warpgroups where they divide
// the rows, else by two.
constexpr GemmConfig Tiled(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .rows = m,
          .cols = n,
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages};
}
// The weights there, 64 of their rows a math warpgroup; stages of several k blocks.
constexpr GemmConfig Skinny(int m, int n, int k_blocks, int stages) {
  return {.family = GemmFamily::kSkinny,
          .rows = n,
          .cols = m,
          .groups = n / 64,
          .stages = stages,
          .k_blocks = k_blocks};
}

// Two CTAs of a cluster share a row-side tile: "_r2" in a kernel's name.
constexpr GemmConfig SharingRows(GemmConfig config) {
  config.share_rows = 2;
  return config;
}
// A column-side tile likewise: "_c2".
constexpr GemmConfig SharingCols(GemmConfig config) {
  config.share_cols = 2;
  return config;
}
// The tile of D leaves while the next one multiplies.
constexpr GemmConfig Storing(GemmConfig config) {
  config.stores_tile = true;
  return config;
}
// The two warpgroups take turns.
constexpr GemmConfig Alternating(GemmConfig config) {
  config.alternates = true;
  return config;
}
constexpr GemmConfig TwoPerSm(GemmConfig config) {
  config.ctas_per_sm = 2;
  return config;
}
constexpr GemmConfig TwoKGroups(GemmConfig config) {
  config.k_groups = 2;
  return config;
}
// Half as many warpgroups, each with twice the rows: of a skinny tile two times 64 of the weights'.
constexpr GemmConfig TwoSubTiles(GemmConfig config) {
  config.groups /= 2;
  return config;
}

// Of groups of rows: tiles begin at any row.
constexpr GemmConfig Ragged(GemmConfig config) {
  config.ragged = true;
  return config;
}
// Likewise, and tiles of several configs go through one ring.
constexpr GemmConfig RaggedInOneRing(GemmConfig config) {
  config.shares_ring = true;
  return Ragged(config);
}
constexpr GemmConfig TakingRest(GemmConfig config) {
  config.takes_rest = true;
  return config;
}
// The finish is a gate: half of the tile's columns of D are gates, and the others their ups.
constexpr GemmConfig Gating(GemmConfig config) {
  config.gates = true;
  return config;
}
// A gradient's: FP32 results of a sub-tile leave by the copy engine, and B has scales by row where
// its kind has some.
constexpr GemmConfig OfGradient(GemmConfig config) {
  config.scales_columns = true;
  return config;
}

// B lies along its rows.
constexpr GemmConfig AlongRows(GemmConfig config) {
  config.b_along_rows = true;
  return config;
}
// A does, too.
constexpr GemmConfig BothAlongRows(GemmConfig config) {
  config.a_along_rows = true;
  return AlongRows(config);
}

// Of another operand kind than FP8 with block scales.
constexpr GemmConfig OfKind(Mma mma, GemmConfig config) {
  config.mma = mma;
  return config;
}

}  // namespace gemmd::kernels::cuda
