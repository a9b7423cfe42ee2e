#include "kernels/bench/cuda/hand_over/hand_over_kernels.h"
#include "kernels/cuda/ptx/global.cuh"

namespace gemmd::kernels::bench {
namespace {

namespace ptx = cuda::ptx;

constexpr uint64_t kMostLookNs = 1'000'000;

__global__ void Stamp(uint64_t* at) { *at = ptx::GlobalTimer(); }

__global__ void StampAndSet(uint64_t* at, uint32_t* word) {
  *at = ptx::GlobalTimer();
  ptx::StoreReleaseSystem(word, 1);
}

__global__ void Ring(uint32_t* done, uint32_t* gate) {
  ptx::StoreReleaseSystem(done, 0);
  ptx::StoreReleaseSystem(gate, 1);
}

__global__ void Busy(uint64_t ns) {
  const uint64_t begin = ptx::GlobalTimer();
  while (ptx::GlobalTimer() - begin < ns) {
  }
}

__global__ void Look(const uint32_t* word) {
  const uint64_t begin = ptx::GlobalTimer();
  while (*const_cast<const volatile uint32_t*>(word) == 0 &&
         ptx::GlobalTimer() - begin < kMostLookNs) {
  }
}

}  // namespace

cudaError_t LaunchStamp(uint64_t* at, cudaStream_t stream) {
  Stamp<<<1, 1, 0, stream>>>(at);
  return cudaGetLastError();
}

cudaError_t LaunchStampAndSet(uint64_t* at, uint32_t* word, cudaStream_t stream) {
  StampAndSet<<<1, 1, 0, stream>>>(at, word);
  return cudaGetLastError();
}

cudaError_t LaunchRing(uint32_t* done, uint32_t* gate, cudaStream_t stream) {
  Ring<<<1, 1, 0, stream>>>(done, gate);
  return cudaGetLastError();
}

cudaError_t LaunchBusy(int microseconds, cudaStream_t stream) {
  Busy<<<1, 1, 0, stream>>>(static_cast<uint64_t>(microseconds) * 1000);
  return cudaGetLastError();
}

cudaError_t LaunchLook(const uint32_t* word, cudaStream_t stream) {
  Look<<<1, 1, 0, stream>>>(word);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
