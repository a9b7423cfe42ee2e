#include <utility>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_few.cuh"
#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

// Each of this cluster's tiles, and this CTA's part of k.
template <int kTileRows, class Tile>
__device__ __forceinline__ void ForEachTile(const AnyGemmArgs& args, int log2_parts,
                                            const Tile& tile) {
  const int rank = static_cast<int>(blockIdx.x) & ((1 << log2_parts) - 1);
  const KPart part = KPart::Of(args.k, rank, log2_parts);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x >> log2_parts) * kTileRows;
  const int64_t rows_apart = static_cast<int64_t>(gridDim.x >> log2_parts) * kTileRows;
  const int64_t col0 = static_cast<int64_t>(blockIdx.y) * kAnyTile;
  const int64_t cols_apart = static_cast<int64_t>(gridDim.y) * kAnyTile;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t col = col0; col < args.n; col += cols_apart) {
      for (int64_t row = row0; row < args.m; row += rows_apart) {
        tile(TileOrigin{batch, row, col}, part);
      }
    }
  }
}

__device__ __forceinline__ bool Multiplies(const AnyGemmArgs& args) {
  return args.k > 0 && args.alpha != 0.0f;
}

template <class Math>
__global__ void __launch_bounds__(kAnyThreads, Math::kCtasPerSm)
    AnyGemm(const __grid_constant__ AnyGemmArgs args, int log2_parts) {
  __shared__ AnySmem smem;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool multiplied = Multiplies(args);
  ForEachTile<kAnyTile>(args, log2_parts, [&](const TileOrigin& tile, const KPart& part) {
    typename Math::Total totals[kSide * kSide] = {};
    if (multiplied) MultiplyTile<Math>(args, tile, part, smem, totals);
    StoreTile<Math>(args, tile, multiplied, part, smem, totals);
  });
}

template <int kGroups, FewWalk kWalk>
__global__ void __launch_bounds__(kAnyThreads, kGroups > 1 ? 1 : 2)
    AnyGemmFew(const __grid_constant__ AnyGemmArgs args, int log2_parts) {
  __shared__ AnySmem smem;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool multiplied = Multiplies(args);
  using Rows = FewRows<kGroups, kWalk>;
  ForEachTile<Rows::kRows>(args, log2_parts, [&](const TileOrigin& tile, const KPart& part) {
    Rows rows(args, tile, part);
    if (multiplied) rows.Run();
    rows.Leave(smem);
    StoreResults<Rows::kRows>(args, tile, multiplied, part, smem.Results<float>());
  });
}

template <class Kernel>
cudaError_t LaunchTiles(Kernel kernel, int rows, const AnyGemmArgs& args, cudaStream_t stream) {
  const int64_t tiles_m = CeilDiv(args.m, rows), tiles_n = CeilDiv(args.n, kAnyTile);
  const int log2_parts =
      AnyGemmLog2Parts(args.batch * tiles_m * tiles_n, args.alpha == 0.0f ? 0 : args.k);
  // Neighbouring CTAs share b's tile.
  return LaunchClusters(kernel, GridOf(tiles_m << log2_parts, tiles_n, args.batch), kAnyThreads,
                        1 << log2_parts, args.programmatic, stream, args, log2_parts);
}

template <class Math>
cudaError_t LaunchMath(const AnyGemmArgs& args, cudaStream_t stream) {
  return LaunchTiles(AnyGemm<Math>, kAnyTile, args, stream);
}

template <FewWalk kWalk>
cudaError_t LaunchFew(int rows, const AnyGemmArgs& args, cudaStream_t stream) {
  const auto kernel = rows == 8    ? AnyGemmFew<1, kWalk>
                      : rows == 16 ? AnyGemmFew<2, kWalk>
                                   : AnyGemmFew<4, kWalk>;
  return LaunchTiles(kernel, rows, args, stream);
}

// D's rows as columns.
AnyGemmArgs Turned(AnyGemmArgs args) {
  std::swap(args.m, args.n);
  std::swap(args.a, args.b);
  std::swap(args.d.row_stride, args.d.col_stride);
  std::swap(args.c.row_stride, args.c.col_stride);
  return args;
}

cudaError_t LaunchF32(const AnyGemmArgs& given, cudaStream_t stream) {
  const bool turns = AnyFloatTurns(given.m, given.n, given.bias != nullptr);
  const AnyGemmArgs args = turns ? Turned(given) : given;
  const AnyOperand& b = args.b;
  const bool has_scales = args.a.scales.data != nullptr || b.scales.data != nullptr;
  const int rows = AnyFloatTileRows(args.m, has_scales);
  if (rows == kAnyTile) return LaunchMath<MathF32>(args, stream);
  switch (FewWalkOf(args.n, args.k, HasUnits(b, b.row_stride, b.k_stride),
                    HasUnits(b, b.k_stride, b.row_stride))) {
    case FewWalk::kAlongK:
      return LaunchFew<FewWalk::kAlongK>(rows, args, stream);
    case FewWalk::kAlongRows:
      return LaunchFew<FewWalk::kAlongRows>(rows, args, stream);
    case FewWalk::kAnywhere:
      return LaunchFew<FewWalk::kAnywhere>(rows, args, stream);
  }
  return cudaErrorInvalidValue;
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
      return LaunchF32(args, stream);
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
