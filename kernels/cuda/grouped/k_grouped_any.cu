// sm90_any_gemm's tiles, each with its group's columns.

#include "kernels/cuda/grouped/k_grouped.h"
#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

// The columns from `first` on.
__device__ __forceinline__ AnyOperand ColumnsOf(AnyOperand operand, ElementType type, int first) {
  operand.data =
      static_cast<const char*>(operand.data) + first * operand.k_stride * ElementBytes(type);
  operand.batch_stride = 0;
  operand.scales.batch_stride = 0;
  if (operand.scales.data != nullptr) {
    operand.scales.data += first / kScaleK * operand.scales.k_stride;
  }
  return operand;
}

template <class Math>
__global__ void __launch_bounds__(kAnyThreads, 1)
    AnyKGrouped(const __grid_constant__ AnyKGroupedArgs args, int64_t tiles_m, int64_t tiles_n) {
  __shared__ AnySmem smem;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int64_t of_group = tiles_m * tiles_n;
  for (int64_t i = blockIdx.x; i < args.gemm.batch * of_group; i += gridDim.x) {
    const int64_t group = i / of_group, tile = i % of_group;
    const int first = args.starts[group];
    AnyGemmArgs one = args.gemm;
    one.k = args.sizes[group];
    one.a = ColumnsOf(one.a, one.type, first);
    one.b = ColumnsOf(one.b, one.b_type, first);
    // The batch is d's and c's alone.
    const TileOrigin origin = {group, tile / tiles_n * kAnyTile, tile % tiles_n * kAnyTile};
    typename Math::Total totals[kSide * kSide] = {};
    const KPart all = KPart::All(one.k);
    if (one.k > 0) MultiplyTile<Math>(one, origin, all, smem, totals);
    StoreTile<Math>(one, origin, one.k > 0, all, smem, totals);
  }
}

template <class Math>
cudaError_t LaunchMath(const AnyKGroupedArgs& args, cudaStream_t stream) {
  constexpr int64_t kMostCtas = 2048;
  const int64_t tiles_m = CeilDiv(args.gemm.m, kAnyTile);
  const int64_t tiles_n = CeilDiv(args.gemm.n, kAnyTile);
  const int64_t tiles = args.gemm.batch * tiles_m * tiles_n;
  return LaunchKernel(AnyKGrouped<Math>, GridOf(tiles < kMostCtas ? tiles : kMostCtas), kAnyThreads,
                      true, stream, args, tiles_m, tiles_n);
}

}  // namespace

cudaError_t LaunchAnyKGrouped(const AnyKGroupedArgs& args, cudaStream_t stream) {
  if (args.gemm.m == 0 || args.gemm.n == 0) return cudaSuccess;
  switch (args.gemm.type) {
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
