// 16 bytes of memory from anywhere: of the two aligned units around them.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// The 16 bytes from byte `shift` on, below 16, of 32.
__device__ __forceinline__ uint4 BytesFrom(uint4 low, uint4 high, int shift) {
  uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = shift & 4 ? w[i + 1] : w[i];
  const int bits = (shift & 3) * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// The first `bytes` of them; the rest is 0.
__device__ __forceinline__ uint4 FirstBytes(uint4 v, int bytes) {
  const auto keep = [bytes](uint32_t word, int at) {
    const int left = bytes - at;
    return left >= 4 ? word : left <= 0 ? 0u : word & ((1u << left * 8) - 1);
  };
  return make_uint4(keep(v.x, 0), keep(v.y, 4), keep(v.z, 8), keep(v.w, 12));
}

// The two units around `bytes` bytes, at most 16, of an operand. No unit without one of them is
// read: memory may end there.
struct UnitsAround {
  uint4 low, high;

  __device__ __forceinline__ static int ShiftOf(const void* from) {
    return static_cast<int>(reinterpret_cast<uint64_t>(from) & 15);
  }
  __device__ __forceinline__ void Load(const void* from, int bytes) {
    low = high = make_uint4(0, 0, 0, 0);
    if (bytes <= 0) return;
    const int shift = ShiftOf(from);
    const auto* const units =
        reinterpret_cast<const uint4*>(static_cast<const char*>(from) - shift);
    low = units[0];
    if (shift + bytes > 16) high = units[1];
  }
  __device__ __forceinline__ uint4 Bytes(int shift, int bytes) const {
    const uint4 v = BytesFrom(low, high, shift);
    return bytes < 16 ? FirstBytes(v, bytes) : v;
  }
};

}  // namespace gemmd::kernels::cuda
