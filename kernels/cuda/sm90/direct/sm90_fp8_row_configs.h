// The configs of E4M3 with scales by row.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

inline constexpr GemmConfig kFp8RowTiledConfigs[] = {
    Tiled(128, 64, 8),
    Tiled(128, 112, 6),
    Storing(Tiled(128, 128, 5)),
    Tiled(128, 144, 6),
    Tiled(128, 160, 5),
    Storing(Tiled(128, 176, 4)),
    Tiled(128, 192, 5),
    Storing(Tiled(128, 192, 4)),
    Tiled(256, 112, 4),
    SharingRows(Tiled(256, 128, 4)),
    Storing(Tiled(256, 128, 3)),
    SharingRows(Storing(Tiled(256, 128, 3))),
    Tiled(192, 96, 5),
    Storing(Tiled(192, 128, 4)),
    SharingRows(Storing(Tiled(192, 128, 4))),
    SharingCols(Storing(Tiled(128, 160, 5))),
    SharingCols(Storing(Tiled(128, 192, 4))),
};
// One k block a stage serves k that is not a multiple of 128. Of many widths: rows just over one's
// tile fill another's.
inline constexpr GemmConfig kFp8RowSkinnyConfigs[] = {
    TwoPerSm(Skinny(16, 64, 1, 9)),
    TwoPerSm(TwoKGroups(Skinny(16, 64, 2, 4))),
    TwoPerSm(Skinny(32, 64, 1, 7)),
    TwoPerSm(TwoKGroups(Skinny(32, 64, 2, 3))),
    TwoKGroups(Skinny(48, 64, 2, 7)),
    TwoPerSm(Skinny(64, 64, 1, 6)),
    TwoKGroups(Skinny(64, 64, 2, 6)),
    TwoKGroups(Skinny(80, 64, 2, 5)),
    TwoKGroups(Skinny(112, 64, 2, 4)),
    Skinny(64, 128, 2, 4),
    Skinny(80, 128, 1, 7),
    Skinny(96, 128, 1, 6),
    Skinny(112, 128, 1, 6),
    Skinny(120, 128, 1, 5),
    Skinny(136, 128, 1, 5),
    Skinny(144, 128, 1, 5),
    Skinny(160, 128, 1, 4),
    Skinny(176, 128, 1, 4),
    Skinny(200, 128, 1, 4),
    Skinny(112, 192, 1, 4),
    TwoSubTiles(Skinny(96, 256, 1, 4)),
    TwoSubTiles(Skinny(112, 256, 1, 4)),
};

}  // namespace gemmd::kernels::cuda
