// The configs of the compute-bound family.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

// What each is the fastest for on an H200: deploy/tuning/h200.json.
inline constexpr GemmConfig kTiledConfigs[] = {
    Tiled(128, 64, 8),
    SharingCols(Tiled(128, 64, 8)),
    TwoPerSm(Tiled(128, 64, 3)),
    Tiled(128, 112, 6),
    Tiled(128, 128, 6),
    Tiled(128, 144, 6),
    SharingCols(Tiled(128, 144, 6)),
    Tiled(128, 192, 5),
    Tiled(256, 128, 4),
    SharingRows(Tiled(256, 128, 4)),
    Tiled(256, 112, 4),
    Tiled(192, 96, 5),
    SharingRows(Tiled(192, 128, 4)),
    Storing(Tiled(128, 128, 5)),
    Storing(Tiled(128, 176, 4)),
    Storing(Tiled(128, 192, 4)),
    SharingRows(Storing(Tiled(128, 192, 4))),
    Storing(Tiled(256, 128, 3)),
    SharingRows(Storing(Tiled(256, 128, 3))),
    Storing(Tiled(192, 128, 4)),
    SharingRows(Storing(Tiled(192, 128, 4))),
    Tiled(128, 96, 7),
    Tiled(128, 160, 5),
    Tiled(192, 64, 6),
    Tiled(192, 112, 5),
    SharingCols(Storing(Tiled(128, 160, 5))),
    SharingCols(Storing(Tiled(128, 192, 4))),
    SharingRows(Tiled(256, 112, 4)),
    TwoPerSm(Tiled(128, 32, 4)),
};

}  // namespace gemmd::kernels::cuda
