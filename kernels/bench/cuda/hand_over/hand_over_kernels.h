// The kernels of hand_over_bench, of one thread each. Times are the device's clock, in nanoseconds.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::bench {

cudaError_t LaunchStamp(uint64_t* at, cudaStream_t stream);

// Leaves the time, then sets the word to 1 for the whole system to see.
cudaError_t LaunchStampAndSet(uint64_t* at, uint32_t* word, cudaStream_t stream);

// Takes `done` back to 0, then sets `gate` to 1.
cudaError_t LaunchRing(uint32_t* done, uint32_t* gate, cudaStream_t stream);

cudaError_t LaunchBusy(int microseconds, cudaStream_t stream);

// Ends when the word is not 0, or after a millisecond.
cudaError_t LaunchLook(const uint32_t* word, cudaStream_t stream);

}  // namespace gemmd::kernels::bench
