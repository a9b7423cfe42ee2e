#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

template <class Math>
__global__ void __launch_bounds__(kAnyThreads, Math::kCtasPerSm)
    AnyGemm(const __grid_constant__ AnyGemmArgs args, int64_t tiles_m, int64_t tiles_n) {
  alignas(16) __shared__ unsigned char a_tile[kAnyTile * kPitch];
  alignas(16) __shared__ unsigned char b_tile[kAnyTile * kPitch];
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool multiplied = args.k > 0 && args.alpha != 0.0f;
  const int64_t tiles = args.batch * tiles_m * tiles_n;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const int64_t column = i / tiles_m;  // neighbouring CTAs share b's tile
    const TileOrigin tile = {column / tiles_n, i % tiles_m * kAnyTile, column % tiles_n * kAnyTile};
    typename Math::Total totals[kSide * kSide] = {};
    if (multiplied) MultiplyTile<Math>(args, tile, a_tile, b_tile, totals);
    StoreTile<Math>(args, tile, multiplied, totals);
  }
}

template <class Math>
cudaError_t LaunchMath(const AnyGemmArgs& args, cudaStream_t stream) {
  const int64_t tiles_m = CeilDiv(args.m, kAnyTile);
  const int64_t tiles_n = CeilDiv(args.n, kAnyTile);
  return LaunchKernel(AnyGemm<Math>, GridOf(args.batch * tiles_m * tiles_n), kAnyThreads,
                      args.programmatic, stream, args, tiles_m, tiles_n);
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
