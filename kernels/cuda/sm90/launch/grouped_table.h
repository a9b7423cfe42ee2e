// Matrices of a grouped matmul that lie apart: a table of them in device memory, with a tensor map
// for each, which a kernel in front of the matmul makes. Plain data: shared by host and device.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::cuda {

inline constexpr int kTileLists = 2;  // few rows a group, and many

// Where a group's matrix lies.
struct GroupMatrix {
  const void* values = nullptr;
  const float* scales = nullptr;  // null: it has none
};

// Matrices of one launch, whose arguments take 4 KiB at most.
inline constexpr int kTableChunk = 128;

// Entries and maps of groups [first, first + count).
struct TableArgs {
  int32_t first = 0;
  int32_t count = 0;
  GroupMatrix matrices[kTableChunk];
  GroupMatrix* entries = nullptr;      // [groups]
  CUtensorMap* maps[kTileLists] = {};  // [groups]; null: that list needs none
  CUtensorMap like[kTileLists];        // a map of any of the matrices
};
cudaError_t LaunchTable(const TableArgs& args, bool programmatic, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
