#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/run/mark_rounds.h"

namespace gemmd::kernels::cuda {
namespace {

__global__ void __launch_bounds__(32) AwaitRound(const uint32_t* rounds, uint32_t round) {
  ptx::GridDependencyWait();
  uint32_t seen;
  do {  // PTX ISA 9.7.9.9: another engine writes it
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(rounds) : "memory");
  } while (static_cast<int32_t>(seen - round) < 0);
  // Not before: the kernel behind would hold its SMs, for which a kernel of another stream may wait
  // that the marks are behind.
  ptx::GridDependencyLaunch();
}

}  // namespace

cudaError_t LaunchAwaitRound(const uint32_t* rounds, uint32_t round, cudaStream_t stream) {
  return LaunchKernel(AwaitRound, dim3(1), 1, /*programmatic=*/true, stream, rounds, round);
}

}  // namespace gemmd::kernels::cuda
