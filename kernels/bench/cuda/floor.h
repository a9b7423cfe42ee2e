// The floor: a plain kernel that reads a matmul's operands and scales once and writes as many bytes
// as its result has, with nothing between. Measured, not computed, because a cold read of 4 MB runs
// at a quarter of the bandwidth that a gigabyte reaches. Also the timer's helpers.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::bench {

// Four things to read and one to write. Addresses are multiples of 16, and sizes are rounded up to
// 16 bytes: allocations must reach that far.
struct FloorTraffic {
  const void* source[4] = {};
  int64_t source_bytes[4] = {};
  void* target = nullptr;
  int64_t target_bytes = 0;
  unsigned* sink = nullptr;  // one word that keeps the reads from being optimised away
};

struct FloorConfig {
  int ctas_per_sm;
  bool unroll_8;     // else 4
  bool write_first;  // stores are queued before the loads, else after
};
inline constexpr FloorConfig kFloorConfigs[] = {
    {1, false, false}, {1, true, false}, {2, false, false}, {2, true, false},
    {4, false, false}, {4, true, false}, {8, false, false}, {1, false, true},
    {1, true, true},   {2, false, true}, {2, true, true},   {4, false, true},
};

cudaError_t LaunchFloor(const FloorConfig& config, const FloorTraffic& traffic, int sms,
                        cudaStream_t stream);

// Copies `bytes`, a multiple of 16, between device buffers that do not overlap.
cudaError_t LaunchCopy(const void* source, void* target, int64_t bytes, int sms,
                       cudaStream_t stream);

}  // namespace gemmd::kernels::bench
