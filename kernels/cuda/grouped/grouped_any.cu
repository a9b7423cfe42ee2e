// Grouped matmuls of any type, strides, alignment and scales: sm90_any_gemm's tiles, each with its
// group's matrix and bounds.

#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90/launch/grouped.h"

namespace gemmd::kernels::cuda {
namespace {

static_assert(kAnyGroupedRows == kAnyTile, "the directory's tiles are these");

__device__ __forceinline__ void* Shifted(void* data, int64_t elements, ElementType type) {
  return static_cast<char*>(data) + elements * ElementBytes(type);
}
__device__ __forceinline__ const void* Shifted(const void* data, int64_t elements,
                                               ElementType type) {
  return static_cast<const char*>(data) + elements * ElementBytes(type);
}

// The matmul of one tile's item and group, its m the end of the group's rows.
__device__ __forceinline__ AnyGemmArgs MatmulOf(const AnyGroupedArgs& args, const int4& tile) {
  const int64_t group = tile.x, item = tile.y;
  AnyGemmArgs one = args.gemm;
  one.batch = 1;
  one.m = tile.w;
  one.a.data = Shifted(one.a.data, item * one.a.batch_stride, one.type);
  if (one.a.scales.data != nullptr) one.a.scales.data += item * one.a.scales.batch_stride;
  if (args.table != nullptr) {
    one.b.data = args.table[group].values;
    one.b.scales.data = args.table[group].scales;
  } else {
    one.b.data = Shifted(one.b.data, group * one.b.batch_stride, one.b_type);
    if (one.b.scales.data != nullptr) one.b.scales.data += group * one.b.scales.batch_stride;
  }
  one.d.data = Shifted(one.d.data, item * one.d.batch_stride, one.out);
  if (one.bias != nullptr) {
    one.bias = Shifted(one.bias, group * args.bias_group, one.bias_type);
  }
  return one;
}

template <class Math>
__global__ void __launch_bounds__(kAnyThreads, 1)
    AnyGrouped(const __grid_constant__ AnyGroupedArgs args, int64_t tiles_n) {
  __shared__ AnySmem smem;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int64_t tiles = *args.list.count * tiles_n;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const int4 tile = *reinterpret_cast<const int4*>(args.list.tiles + i / tiles_n);
    const AnyGemmArgs one = MatmulOf(args, tile);
    const TileOrigin origin = {0, tile.z, i % tiles_n * kAnyTile};
    const bool multiplied = one.k > 0;
    typename Math::Total totals[kSide * kSide] = {};
    const KPart all = KPart::All(one.k);
    if (multiplied) MultiplyTile<Math>(one, origin, all, smem, totals);
    StoreTile<Math>(one, origin, multiplied, all, smem, totals);
  }
}

template <class Math>
cudaError_t LaunchMath(const AnyGroupedArgs& args, cudaStream_t stream) {
  constexpr int64_t kMostCtas = 2048;
  const int64_t tiles_n = CeilDiv(args.gemm.n, kAnyTile);
  const int64_t tiles = args.most_tiles * tiles_n;
  return LaunchKernel(AnyGrouped<Math>, GridOf(tiles < kMostCtas ? tiles : kMostCtas), kAnyThreads,
                      true, stream, args, tiles_n);
}

}  // namespace

cudaError_t LaunchAnyGrouped(const AnyGroupedArgs& args, cudaStream_t stream) {
  if (args.most_tiles == 0 || args.gemm.n == 0) return cudaSuccess;
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
