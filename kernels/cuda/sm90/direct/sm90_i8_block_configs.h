// The configs of INT8 with block scales.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

inline constexpr GemmConfig kI8BlockTiledConfigs[] = {
    Tiled(128, 64, 8),           SharingCols(Tiled(128, 64, 8)),
    Tiled(128, 112, 6),          Tiled(128, 128, 6),
    Tiled(128, 144, 6),          Tiled(128, 192, 5),
    Tiled(256, 112, 4),          SharingRows(Tiled(256, 128, 4)),
    Storing(Tiled(128, 128, 5)), Storing(Tiled(128, 176, 4)),
    Storing(Tiled(128, 192, 4)), SharingRows(Storing(Tiled(256, 128, 3))),
    Tiled(192, 64, 6),           Tiled(192, 96, 5),
    Tiled(192, 112, 5),          Storing(Tiled(192, 128, 4)),
    Tiled(128, 96, 7),           Tiled(128, 160, 5),
};
// One k block a stage serves k that is not a multiple of 128.
inline constexpr GemmConfig kI8BlockSkinnyConfigs[] = {
    TwoPerSm(Skinny(16, 64, 1, 9)),
    TwoPerSm(TwoKGroups(Skinny(16, 64, 2, 4))),
    TwoPerSm(Skinny(32, 64, 1, 7)),
    TwoPerSm(TwoKGroups(Skinny(32, 64, 2, 3))),
    TwoPerSm(Skinny(64, 64, 1, 6)),
    TwoKGroups(Skinny(64, 64, 2, 6)),
    Skinny(96, 128, 1, 6),
    TwoPerSm(TwoKGroups(Skinny(24, 64, 2, 4))),
    TwoPerSm(Skinny(48, 64, 1, 6)),
    TwoKGroups(Skinny(48, 64, 2, 7)),
    TwoKGroups(Skinny(80, 64, 2, 5)),
};

}  // namespace gemmd::kernels::cuda
