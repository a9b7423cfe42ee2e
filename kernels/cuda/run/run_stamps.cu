#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/run/run_stamps.h"

namespace gemmd::kernels::cuda {
namespace {

__global__ void __launch_bounds__(32) Begin(uint64_t* began) {
  ptx::GridDependencyLaunch();
  *began = ptx::GlobalTimer();
}

__global__ void __launch_bounds__(32) End(RunEnd end) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  // Before the word: what the host's memory takes to have it is no part of the run. On the second
  // GPU of a machine the time read behind it was 5 us longer.
  const uint64_t ended = ptx::GlobalTimer();
  ptx::StoreReleaseSystem(end.word, 1);
  end.stamps->began_ns = end.began != nullptr ? *end.began : 0;
  end.stamps->ended_ns = ended;
  ptx::StoreReleaseSystem(&end.stamps->ended, 1);
}

}  // namespace

cudaError_t LaunchBegin(uint64_t* began, cudaStream_t stream) {
  return LaunchKernel(Begin, dim3(1), 1, /*programmatic=*/false, stream, began);
}

cudaError_t LaunchEnd(const RunEnd& end, bool programmatic, cudaStream_t stream) {
  return LaunchKernel(End, dim3(1), 1, programmatic, stream, end);
}

}  // namespace gemmd::kernels::cuda
