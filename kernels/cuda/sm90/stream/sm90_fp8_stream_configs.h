// The configs of E4M3 by stream-k, with scales of either kind.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {

// Large tiles, whose products take nearly all of shared memory's time: how many there are is no
// matter here.
inline constexpr GemmConfig kFp8StreamConfigs[] = {
    Tiled(128, 192, 5),
    Tiled(192, 128, 4),
};

}  // namespace gemmd::kernels::cuda
