// Marks: kernels between one timed call and the next. In a profile their names, which begin with
// kMarkName, tell where a call begins.

#pragma once

#include <cuda_runtime_api.h>

namespace gemmd::kernels::bench {

inline constexpr char kMarkName[] = "gemmd_bench_mark";

// Does nothing. Timed itself, it is what a launch costs.
cudaError_t LaunchMark(cudaStream_t stream);

// Runs 192 KiB of instructions once on each of `sms` SMs, which take the place of what was in their
// instruction caches. Writes nothing; `sink` is a float that it could write to.
cudaError_t LaunchOtherCode(float* sink, int sms, cudaStream_t stream);

}  // namespace gemmd::kernels::bench
