// BF16's and FP16's kernels for a B along its rows, or for A as well: the same configs, compiled
// once more. Each finishes what it is asked for. No times are kept for them; their plain twins' say
// which is chosen.

#pragma once

#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16TiledAlongRows;
extern const GemmFamilyEntry kSm90Bf16SkinnyAlongRows;
extern const GemmFamilyEntry kSm90F16TiledAlongRows;
extern const GemmFamilyEntry kSm90F16SkinnyAlongRows;
extern const StreamFamilyEntry kSm90Bf16StreamAlongRows;
extern const StreamFamilyEntry kSm90F16StreamAlongRows;

extern const GemmFamilyEntry kSm90Bf16TiledBothAlongRows;
extern const GemmFamilyEntry kSm90Bf16SkinnyBothAlongRows;
extern const GemmFamilyEntry kSm90F16TiledBothAlongRows;
extern const GemmFamilyEntry kSm90F16SkinnyBothAlongRows;
extern const StreamFamilyEntry kSm90Bf16StreamBothAlongRows;
extern const StreamFamilyEntry kSm90F16StreamBothAlongRows;

extern const DirectGroupedEntry kSm90Bf16GroupedAlongRows;
extern const DirectGroupedEntry kSm90F16GroupedAlongRows;

}  // namespace gemmd::kernels::cuda
