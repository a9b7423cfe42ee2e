// The two kernels around an armed plan's: one tells when the run began, the other that it is
// through, to the caller and to this process. Kernels behind one another may overlap their ends,
// which no event and no write of the stream between them allows.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::cuda {

// Pinned, and this process's alone: what the device leaves there is believed. Nanoseconds of the
// device's clock.
struct alignas(64) RunStamps {
  uint64_t began_ns;  // 0: not told; it is the end of the run in front
  uint64_t ended_ns;
  uint32_t ended;  // 1 behind the two
  uint32_t wake;   // written for the sake of writing (CudaStream::WakeWaiting); nobody reads it
};

struct RunEnd {
  uint32_t* word;         // the caller's, set to 1; 4-byte aligned memory that the device addresses
  const uint64_t* began;  // that LaunchBegin wrote, or null
  RunStamps* stamps;
};

// Queues a store of the time to `began`, the device's memory. The kernel behind it may be launched
// to overlap its end.
cudaError_t LaunchBegin(uint64_t* began, cudaStream_t stream);

// Queues the end. Whoever sees end.word or end.stamps->ended set finds all that the stream did
// before. With `programmatic`, behind a kernel alone, it is in place before that one has ended; the
// kernel behind it may overlap its end in turn.
cudaError_t LaunchEnd(const RunEnd& end, bool programmatic, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
