// Code that takes the place of other code in the SMs' instruction caches.

#ifndef GEMMD_KERNELS_BENCH_CUDA_OTHER_CODE_H_
#define GEMMD_KERNELS_BENCH_CUDA_OTHER_CODE_H_

#include <cuda_runtime_api.h>

namespace gemmd::kernels::bench {

// 192 KiB of instructions, once on each of `sms` SMs. Writes nothing; `sink` is a float that it
// could write to.
cudaError_t LaunchOtherCode(float* sink, int sms, cudaStream_t stream);

}  // namespace gemmd::kernels::bench

#endif  // GEMMD_KERNELS_BENCH_CUDA_OTHER_CODE_H_
