#include "kernels/bench/cuda/floor.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kThreads = 512;

// The four sources as one row of 16-byte units, so that all loads of a thread are in flight at
// once: a loop for each source would wait out HBM's latency four times. base[i] is moved back by
// the units before source i. 32-bit indices: address arithmetic must not be what limits.
struct FlatTraffic {
  const uint4* base[4];
  unsigned end[4];  // in units, ascending; end[3] is the total
  uint4* target;
  unsigned target_units;
  unsigned* sink;
};
constexpr int64_t kMaxUnits = int64_t{1} << 30;  // 16 GiB; index sums stay below 2^32

__device__ __forceinline__ uint4 LoadUnit(const FlatTraffic& t, unsigned unit) {
  const uint4* base = t.base[0];
  if (unit >= t.end[0]) base = t.base[1];
  if (unit >= t.end[1]) base = t.base[2];
  if (unit >= t.end[2]) base = t.base[3];
  return __ldg(base + unit);
}

template <int kUnroll>
__device__ __forceinline__ void WriteAll(const FlatTraffic& t, unsigned first, unsigned step) {
  for (unsigned unit = first; unit < t.target_units; unit += kUnroll * step) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (unit + i * step < t.target_units) {
        t.target[unit + i * step] = make_uint4(0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u);
      }
    }
  }
}

template <int kUnroll, bool kWriteFirst>
__global__ void __launch_bounds__(kThreads) FloorKernel(const FlatTraffic t) {
  const unsigned first = blockIdx.x * kThreads + threadIdx.x;
  const unsigned step = gridDim.x * kThreads;
  if (kWriteFirst) WriteAll<kUnroll>(t, first, step);
  unsigned seen = 0;
  for (unsigned unit = first; unit < t.end[3]; unit += kUnroll * step) {
    uint4 x[kUnroll];
    if (unit + (kUnroll - 1) * step < t.end[0]) {  // most of the time: the weights come first
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) x[i] = __ldg(t.base[0] + unit + i * step);
    } else {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        x[i] = make_uint4(0, 0, 0, 0);
        if (unit + i * step < t.end[3]) x[i] = LoadUnit(t, unit + i * step);
      }
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) seen |= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  }
  if (!kWriteFirst) WriteAll<kUnroll>(t, first, step);
  // Random operands never OR to this in practice; if they did, one harmless store would follow.
  if (seen == 0x13579bdfu) *t.sink = seen;
}

__global__ void __launch_bounds__(kThreads)
    CopyKernel(const uint4* source, uint4* target, int64_t units) {
  constexpr int kUnroll = 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t unit = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; unit < units;
       unit += kUnroll * step) {
    uint4 x[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (unit + i * step < units) x[i] = __ldg(source + unit + i * step);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (unit + i * step < units) target[unit + i * step] = x[i];
    }
  }
}

}  // namespace

cudaError_t LaunchCopy(const void* source, void* target, int64_t bytes, int sms,
                       cudaStream_t stream) {
  constexpr int kCtasPerSm = 4;
  CopyKernel<<<kCtasPerSm * sms, kThreads, 0, stream>>>(static_cast<const uint4*>(source),
                                                        static_cast<uint4*>(target), bytes / 16);
  return cudaGetLastError();
}

cudaError_t LaunchFloor(const FloorConfig& config, const FloorTraffic& traffic, int sms,
                        cudaStream_t stream) {
  FlatTraffic flat;
  int64_t units = 0;
  for (int i = 0; i < 4; ++i) {
    flat.base[i] = static_cast<const uint4*>(traffic.source[i]) - units;
    units += (traffic.source_bytes[i] + 15) / 16;
    flat.end[i] = static_cast<unsigned>(units);
  }
  const int64_t target_units = (traffic.target_bytes + 15) / 16;
  if (units > kMaxUnits || target_units > kMaxUnits) return cudaErrorInvalidValue;
  flat.target = static_cast<uint4*>(traffic.target);
  flat.target_units = static_cast<unsigned>(target_units);
  flat.sink = traffic.sink;
  const int grid = config.ctas_per_sm * sms;
  if (config.unroll_8) {
    if (config.write_first) {
      FloorKernel<8, true><<<grid, kThreads, 0, stream>>>(flat);
    } else {
      FloorKernel<8, false><<<grid, kThreads, 0, stream>>>(flat);
    }
  } else {
    if (config.write_first) {
      FloorKernel<4, true><<<grid, kThreads, 0, stream>>>(flat);
    } else {
      FloorKernel<4, false><<<grid, kThreads, 0, stream>>>(flat);
    }
  }
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
