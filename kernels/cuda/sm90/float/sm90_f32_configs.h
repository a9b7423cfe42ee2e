// The configs of FP32.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

// One chain a warpgroup, so 64 rows each. Results leave as FP32 by the threads: there is none that
// stores.
inline constexpr GemmConfig kF32TiledConfigs[] = {
    Tiled(128, 64, 8),
    Tiled(128, 96, 7),
    Tiled(128, 128, 6),
    Tiled(128, 160, 5),
    Tiled(128, 192, 5),
    SharingCols(Tiled(128, 128, 6)),
    SharingCols(Tiled(128, 192, 5)),
    SharingCols(Tiled(128, 160, 5)),
    SharingRows(SharingCols(Tiled(128, 128, 6))),
    SharingRows(SharingCols(Tiled(128, 192, 5))),
};

}  // namespace gemmd::kernels::cuda
