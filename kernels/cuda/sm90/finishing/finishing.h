// The families' kernels for what NeedsFinish(), and for rows of D at no multiples of 16 bytes: the
// same configs, compiled once more with the code of sm90_finish.cuh. No times are kept for theirs;
// their plain twins' say which is chosen.

#pragma once

#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8TiledFinishing;
extern const GemmFamilyEntry kSm90Fp8SkinnyFinishing;
extern const GemmFamilyEntry kSm90Bf16TiledFinishing;
extern const GemmFamilyEntry kSm90Bf16SkinnyFinishing;
extern const GemmFamilyEntry kSm90F16TiledFinishing;
extern const GemmFamilyEntry kSm90F16SkinnyFinishing;
extern const GemmFamilyEntry kSm90I8TiledFinishing;
extern const GemmFamilyEntry kSm90I8SkinnyFinishing;
extern const GemmFamilyEntry kSm90I8BlockTiledFinishing;
extern const GemmFamilyEntry kSm90I8BlockSkinnyFinishing;
extern const GemmFamilyEntry kSm90Fp8RowTiledFinishing;
extern const GemmFamilyEntry kSm90Fp8RowSkinnyFinishing;

extern const StreamFamilyEntry kSm90Bf16StreamFinishing;
extern const StreamFamilyEntry kSm90F16StreamFinishing;
extern const StreamFamilyEntry kSm90Fp8StreamFinishing;
extern const StreamFamilyEntry kSm90Fp8RowStreamFinishing;

}  // namespace gemmd::kernels::cuda
