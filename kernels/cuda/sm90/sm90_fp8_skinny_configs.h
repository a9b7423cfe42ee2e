// The configs of the small-m family.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

// What each is the fastest for on an H200: deploy/tuning/h200.json and, from m = 24 on,
// docs/benchmarks/h200-fp8-models.md. One k block a stage serves k that is not a multiple of 128.
inline constexpr GemmConfig kSkinnyConfigs[] = {
    TwoPerSm(Skinny(16, 64, 1, 9)),
    Skinny(16, 64, 2, 6),
    TwoPerSm(Skinny(16, 64, 2, 4)),
    TwoPerSm(TwoKGroups(Skinny(16, 64, 2, 4))),
    TwoPerSm(TwoKGroups(Skinny(16, 64, 4, 2))),
    TwoPerSm(Skinny(32, 64, 1, 7)),
    TwoPerSm(TwoKGroups(Skinny(32, 64, 2, 3))),
    TwoPerSm(Skinny(64, 64, 1, 6)),
    TwoKGroups(Skinny(64, 64, 2, 6)),
    TwoKGroups(Skinny(64, 64, 4, 3)),
    TwoPerSm(Skinny(64, 64, 2, 3)),
    Skinny(128, 64, 2, 4),
    TwoPerSm(TwoKGroups(Skinny(24, 64, 2, 4))),
    TwoKGroups(Skinny(48, 64, 2, 7)),
    TwoPerSm(Skinny(48, 64, 1, 6)),
    TwoKGroups(Skinny(72, 64, 2, 5)),
    TwoKGroups(Skinny(80, 64, 2, 5)),
    TwoKGroups(Skinny(96, 64, 2, 4)),
    TwoKGroups(Skinny(112, 64, 2, 4)),
    Skinny(80, 128, 1, 7),
    Skinny(96, 128, 1, 6),
    Skinny(136, 128, 1, 5),
    Skinny(160, 128, 1, 4),
    Skinny(200, 128, 1, 4),
};

}  // namespace gemmd::kernels::cuda
