#include "kernels/bench/cuda/gradient/gradient_data.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kThreads = 256, kBlocks = 2048;

__device__ __forceinline__ uint32_t Mix(uint64_t i, uint32_t seed) {
  uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9u ^ static_cast<uint32_t>(i >> 32) ^ seed;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
__device__ __forceinline__ int64_t First() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
constexpr int64_t kStep = int64_t{kThreads} * kBlocks;

__global__ void Codes(uint8_t* codes, int64_t count, bool e5m2, uint32_t seed) {
  for (int64_t i = First(); i < count; i += kStep) {
    const uint32_t bits = Mix(i, seed);
    const uint32_t sign = bits & 0x80;
    const uint32_t code =
        e5m2 ? (13 + (bits >> 8 & 3)) << 2 | (bits & 3) : (5 + (bits >> 8 & 3)) << 3 | (bits & 7);
    codes[i] = static_cast<uint8_t>(sign | code);
  }
}
__global__ void Codes16(uint16_t* codes, int64_t count, bool f16, uint32_t seed) {
  for (int64_t i = First(); i < count; i += kStep) {
    const uint32_t bits = Mix(i, seed);
    const uint32_t sign = bits & 0x8000;
    const uint32_t code = f16 ? (13 + (bits >> 16 & 3)) << 10 | (bits & 0x3ff)
                              : (125 + (bits >> 16 & 3)) << 7 | (bits & 0x7f);
    codes[i] = static_cast<uint16_t>(sign | code);
  }
}
__global__ void Floats(float* values, int64_t count, float factor, uint32_t seed) {
  for (int64_t i = First(); i < count; i += kStep) {
    values[i] = (0.5f + static_cast<float>(Mix(i, seed) >> 8) * 0x1p-24f) * factor;
  }
}
__global__ void Different(const uint32_t* a, const uint32_t* b, int64_t words,
                          unsigned long long* different) {
  unsigned long long found = 0;
  for (int64_t i = First(); i < words; i += kStep) found += a[i] != b[i];
  if (found != 0) atomicAdd(different, found);
}

}  // namespace

cudaError_t FillCodes(uint8_t* codes, int64_t count, bool e5m2, uint32_t seed) {
  Codes<<<kBlocks, kThreads>>>(codes, count, e5m2, seed);
  return cudaGetLastError();
}
cudaError_t Fill16Bits(uint16_t* codes, int64_t count, bool f16, uint32_t seed) {
  Codes16<<<kBlocks, kThreads>>>(codes, count, f16, seed);
  return cudaGetLastError();
}
cudaError_t FillFloats(float* values, int64_t count, float factor, uint32_t seed) {
  Floats<<<kBlocks, kThreads>>>(values, count, factor, seed);
  return cudaGetLastError();
}
cudaError_t CountDifferent(const uint32_t* a, const uint32_t* b, int64_t words,
                           unsigned long long* different) {
  Different<<<kBlocks, kThreads>>>(a, b, words, different);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
