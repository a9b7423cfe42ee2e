// A table of matrices on the device: where each lies, and its tensor maps. The addresses come as
// arguments of the launch, so that a graph holds them by itself; what is made of them lies in the
// run's own scratch memory.

#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/sm90/launch/grouped_table.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMapWords = sizeof(CUtensorMap) / 4;
static_assert(kMapWords == 32, "a word a lane");

// A warp for each matrix. Scratch memory is written once what is in front has read it: no map
// changes while a copy by it may be on its way.
__global__ void __launch_bounds__(kWarps * 32) WriteTable(const __grid_constant__ TableArgs args) {
  alignas(128) __shared__ CUtensorMap maps[kWarps];
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int i = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (i >= args.count) return;
  const GroupMatrix matrix = args.matrices[i];
  const int group = args.first + i;
  if (lane == 0) args.entries[group] = matrix;
  for (int list = 0; list < kTileLists; ++list) {
    if (args.maps[list] == nullptr) continue;
    reinterpret_cast<uint32_t*>(&maps[warp])[lane] =
        reinterpret_cast<const uint32_t*>(&args.like[list])[lane];
    __syncwarp();  // the map is there
    const uint32_t map = ptx::SmemAddress(&maps[warp]);
    if (lane == 0) ptx::SetTensorMapAddress(map, matrix.values);
    __syncwarp();  // whole
    ptx::PublishTensorMap(args.maps[list] + group, map);
    __syncwarp();  // and copied
  }
}

}  // namespace

cudaError_t LaunchTable(const TableArgs& args, bool programmatic, cudaStream_t stream) {
  if (args.count < 1 || args.count > kTableChunk) return cudaErrorInvalidValue;
  return LaunchKernel(WriteTable, GridOf(CeilDiv(args.count, kWarps)), kWarps * 32, programmatic,
                      stream, args);
}

}  // namespace gemmd::kernels::cuda
