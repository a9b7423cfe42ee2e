// A small pool for tests of the choice: the real one's members change with every measurement. It
// stands in for gemm.cc and the families, so a test links either this or gemmd_cuda_gemm.

#pragma once

#include <string_view>

#include "kernels/cuda/sm90/code_hash.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

inline constexpr std::string_view kTiled = "tiled_128x128";         // in one CTA
inline constexpr std::string_view kTiledPair = "tiled_128x128_c2";  // two CTAs share columns
inline constexpr std::string_view kSkinny8 = "skinny_8x64";         // _k2, _k4, _k8 too
inline constexpr std::string_view kSkinny64 = "skinny_64x64";       // _k2, _k4, _k8 too

GemmVariant Variant(std::string_view name);  // dies when there is none

// The one kernel of another kind than FP8, beside the pool: AllVariants has none of them.
GemmVariant DirectVariant(Mma mma);

DeviceTraits FakeH200();

// As the wire poses it: FP8 with block scales, dense rows, BF16 out.
MatmulProblem Fp8Problem(int64_t m, int64_t n, int64_t k);

// BF16, FP16 or INT8 without scales, otherwise the same.
MatmulProblem DirectProblem(DType dtype, int64_t m, int64_t n, int64_t k);

// Fp8Problem as addresses, all aligned to 256 bytes; none may be followed.
GemmArgs Fp8Args(int64_t m, int64_t n, int64_t k);

}  // namespace gemmd::kernels::cuda
