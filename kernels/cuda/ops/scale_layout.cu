#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/scale_layout.h"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Tiles of 32 rows by 32 k blocks go through shared memory, so that lanes run along src's denser
// dimension when reading and along the rows when writing.
__global__ void __launch_bounds__(kThreads)
    TransposeScales(const __grid_constant__ ScaleLayoutArgs args) {
  __shared__ float tile[kTile][kTile + 1];  // [row][k block]; the odd pitch avoids bank conflicts
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const bool along_k = args.src_k <= args.src_row;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t k0 = static_cast<int64_t>(blockIdx.y) * kTile; k0 < args.k_blocks;
         k0 += static_cast<int64_t>(gridDim.y) * kTile) {
      for (int i = warp; i < kTile; i += kWarps) {
        const int row = along_k ? i : lane;
        const int k = along_k ? lane : i;
        if (row0 + row < args.rows && k0 + k < args.k_blocks) {
          tile[row][k] = args.src[batch * args.src_batch + (row0 + row) * args.src_row +
                                  (k0 + k) * args.src_k];
        }
      }
      __syncthreads();  // the tile is whole
      for (int k = warp; k < kTile; k += kWarps) {
        if (row0 + lane < args.rows && k0 + k < args.k_blocks) {
          args.dst[batch * args.dst_batch + (k0 + k) * args.dst_ld + row0 + lane] = tile[lane][k];
        }
      }
      __syncthreads();  // and has been read, before the next one overwrites it
    }
  }
}

}  // namespace

cudaError_t LaunchScaleLayout(const ScaleLayoutArgs& args, cudaStream_t stream) {
  if (args.batch < 0 || args.rows < 0 || args.k_blocks < 0 || args.rows > kMaxGridX * kTile) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0 || args.rows == 0 || args.k_blocks == 0) return cudaSuccess;
  return LaunchKernel(TransposeScales,
                      GridOf(CeilDiv(args.rows, kTile), CeilDiv(args.k_blocks, kTile), args.batch),
                      kThreads, args.programmatic, stream, args);
}

}  // namespace gemmd::kernels::cuda
