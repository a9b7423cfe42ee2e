// INT8 with block scales: FP8's loop with S32 chains. Of the FP8 families' configs those that were
// the fastest for one of the 44 shapes, their neighbours, and widths in between, for any rows. A
// promotion has a conversion for each FFMA and takes longer than another warpgroup's products: with
// three warpgroups there are two.

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

constexpr GemmConfig kI8BlockTiledConfigs[] = {
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
constexpr GemmConfig kI8BlockSkinnyConfigs[] = {
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

extern const GemmFamilyEntry kSm90I8BlockTiled =
    MakeFamily<Mma::kI8Block, kI8BlockTiledConfigs>("sm90_i8block_tiled");
extern const GemmFamilyEntry kSm90I8BlockSkinny =
    MakeFamily<Mma::kI8Block, kI8BlockSkinnyConfigs>("sm90_i8block_skinny");

}  // namespace gemmd::kernels::cuda
