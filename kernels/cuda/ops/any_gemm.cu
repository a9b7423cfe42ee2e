#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

template <class Math>
__global__ void __launch_bounds__(kAnyThreads, Math::kCtasPerSm)
    AnyGemm(const __grid_constant__ AnyGemmArgs args, int log2_parts) {
  __shared__ AnySmem smem;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool multiplied = args.k > 0 && args.alpha != 0.0f;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << log2_parts) - 1);
  const KPart part = KPart::Of(args.k, rank, log2_parts);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x >> log2_parts) * kAnyTile;
  const int64_t rows_apart = static_cast<int64_t>(gridDim.x >> log2_parts) * kAnyTile;
  const int64_t col0 = static_cast<int64_t>(blockIdx.y) * kAnyTile;
  const int64_t cols_apart = static_cast<int64_t>(gridDim.y) * kAnyTile;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t col = col0; col < args.n; col += cols_apart) {
      for (int64_t row = row0; row < args.m; row += rows_apart) {
        const TileOrigin tile = {batch, row, col};
        typename Math::Total totals[kSide * kSide] = {};
        if (multiplied) MultiplyTile<Math>(args, tile, part, smem, totals);
        StoreTile<Math>(args, tile, multiplied, part, smem, totals);
      }
    }
  }
}

template <class Math>
cudaError_t LaunchMath(const AnyGemmArgs& args, cudaStream_t stream) {
  const int64_t tiles_m = CeilDiv(args.m, kAnyTile), tiles_n = CeilDiv(args.n, kAnyTile);
  const int log2_parts =
      AnyGemmLog2Parts(args.batch * tiles_m * tiles_n, args.alpha == 0.0f ? 0 : args.k);
  // Neighbouring CTAs share b's tile.
  return LaunchClusters(AnyGemm<Math>, GridOf(tiles_m << log2_parts, tiles_n, args.batch),
                        kAnyThreads, 1 << log2_parts, args.programmatic, stream, args, log2_parts);
}

}  // namespace

cudaError_t LaunchAnyGemm(const AnyGemmArgs& args, cudaStream_t stream) {
  if (args.batch < 0 || args.m < 0 || args.n < 0 || args.k < 0 || ElementBytes(args.out) == 1 ||
      (args.bias_type != ElementType::kF32 && args.bias_type != args.out)) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0 || args.m == 0 || args.n == 0) return cudaSuccess;
  switch (args.type) {
    case ElementType::kF32:
      return LaunchMath<MathF32>(args, stream);
    case ElementType::kBF16:
      return LaunchMath<MathBf16>(args, stream);
    case ElementType::kF16:
    case ElementType::kE4M3:
    case ElementType::kE5M2:
      return LaunchMath<MathF16>(args, stream);
    case ElementType::kI8:
      return LaunchMath<MathI8>(args, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gemmd::kernels::cuda
