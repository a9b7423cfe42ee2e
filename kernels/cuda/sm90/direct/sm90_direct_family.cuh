// The tables of BF16, FP16 and INT8: one list for all, of which a .cu makes one type's two
// families.

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

// Without promotion a warpgroup has room for 64 x 256 results; of 128 x 192 some spill.
inline constexpr GemmConfig kDirectTiled[] = {
    Tiled(128, 64, 8),
    Tiled(128, 128, 6),
    Tiled(128, 192, 5),
    Tiled(128, 112, 6),
    Tiled(256, 112, 4),
    Storing(Tiled(128, 176, 4)),
    Alternating(Tiled(64, 128, 8)),
    Alternating(Tiled(128, 128, 6)),
    SharingCols(Alternating(Tiled(128, 128, 6))),
    Storing(Tiled(128, 192, 4)),
    SharingCols(Storing(Tiled(128, 192, 4))),
    SharingCols(Storing(Tiled(128, 256, 3))),
    SharingRows(Storing(Tiled(256, 128, 3))),
    Tiled(128, 144, 6),
    Tiled(128, 256, 4),
    SharingCols(Tiled(128, 256, 4)),
    Alternating(Tiled(64, 256, 5)),
    // Of many rows by few columns: what L2 gives to SMs is the bound, so two of them share B.
    SharingCols(Alternating(Tiled(64, 256, 5))),
    SharingCols(Alternating(Tiled(128, 64, 8))),
    SharingCols(Alternating(Tiled(128, 96, 7))),
    SharingCols(Alternating(Tiled(128, 112, 6))),
    SharingCols(Alternating(Tiled(128, 160, 5))),
    TwoPerSm(Tiled(128, 32, 4)),
};
// Of many widths: rows just over one's tile fill another's.
inline constexpr GemmConfig kDirectSkinny[] = {
    TwoPerSm(Skinny(16, 64, 1, 9)),
    TwoPerSm(TwoKGroups(Skinny(16, 64, 2, 4))),
    TwoPerSm(TwoKGroups(Skinny(32, 64, 2, 3))),
    TwoPerSm(Skinny(32, 64, 1, 8)),
    TwoKGroups(Skinny(48, 64, 2, 7)),
    TwoPerSm(Skinny(64, 64, 1, 6)),
    TwoKGroups(Skinny(64, 64, 2, 6)),
    TwoKGroups(Skinny(80, 64, 2, 5)),
    Skinny(64, 128, 2, 4),
    Skinny(80, 128, 1, 7),
    Skinny(96, 128, 1, 6),
    Skinny(112, 128, 1, 6),
    TwoSubTiles(Skinny(112, 256, 1, 4)),
    Skinny(144, 128, 1, 5),
    Skinny(176, 128, 1, 4),
    SharingRows(Skinny(192, 128, 1, 4)),
    SharingRows(Skinny(224, 128, 1, 3)),
    Skinny(160, 128, 1, 5),
};
// Beside the last one's ring and staging there is no room for INT8's scales.
inline constexpr int kDirectSkinnyWithScales = kLength<kDirectSkinny> - 1;

}  // namespace gemmd::kernels::cuda
