// The tiles of grouped matmuls with block scales that come in two kernels each: one that rounds,
// and one that finishes.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/grouped/sm90_fp8_group_tile.cuh"

namespace gemmd::kernels::cuda {

template <Mma kMma>
struct BlockGroupedConfigs {
  // Of groups of any size, in the order of grouped.h's numbers: up to 64 rows, with the weights on
  // WGMMA's row side, and others. 128 x 256 has what 256 x 128 has of results and of loads, and
  // wastes less of a group's last rows.
  static constexpr GemmConfig kMixed[kTileLists] = {
      OfKind(kMma, RaggedInOneRing(Skinny(64, 128, 2, 4))),
      OfKind(kMma, RaggedInOneRing(Tiled(kWideRows, 256, 4))),
  };
  // Of CTAs in pairs. The first one's boxes of B are those of half tiles.
  static constexpr GemmConfig kPair = SharingCols(kMixed[kWideTile]);
  static constexpr GemmConfig kPairs[kTileLists] = {HalfOf(kPair), kPair};
};

}  // namespace gemmd::kernels::cuda
