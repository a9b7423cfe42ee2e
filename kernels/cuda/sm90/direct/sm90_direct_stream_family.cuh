// The stream-k tables of BF16 and FP16: one list for both, of which a .cu makes one type's.

#pragma once

#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

// Large tiles, of widths that leave few rows over: how many there are is no matter here.
inline constexpr GemmConfig kDirectStream[] = {
    Tiled(128, 192, 5),     Tiled(128, 256, 4),     TwoSubTiles(Skinny(112, 256, 1, 4)),
    Skinny(144, 128, 1, 5), Skinny(176, 128, 1, 4),
};

}  // namespace gemmd::kernels::cuda
