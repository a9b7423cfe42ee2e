// The launch of a grouped matmul in BF16, FP16, INT8 or E4M3 without block scales: one kernel for
// tiles of few rows and of many. Plain data: shared by host and device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/sm90/launch/grouped.h"

namespace gemmd::kernels::cuda {

// Maps are of bytes. A comes in boxes of one k block and kRowsAWideBox rows, of a full tile
// kFullBoxRows, of a thin one kRowsABox. Of a thin tile B comes in two k blocks at once if there
// are whole ones alone: [groups, k blocks, n, 128], else [groups, 1, n, k]. Weights that lie along
// their rows come in boxes of 64 of them and one k block: [groups, 1, k, n].
struct DirectGroupedLaunch {
  CUtensorMap wide_a, full_a, wide_b, thin_a, thin_b;
  GemmArgs args;  // d of the items
  GroupSource source;
  int n_tiles = 1;               // of the weights' rows, for a whole cluster
  int64_t bias_group_bytes = 0;  // between two groups' biases
  int k_blocks = 1;              // of 128 bytes
  bool whole_blocks = false;
  const CUtensorMap* b_maps[kTileLists] = {};  // by group, where matrices lie apart
  const GroupMatrix* table = nullptr;          // likewise: where scales are
};

inline constexpr int kRowsAWideBox = 32, kFullBoxRows = 128;
inline constexpr int kABoxBytes = kRowsABox * kRowBytes;
inline constexpr int kWideBoxBytes = kRowsAWideBox * kRowBytes;

struct DirectGroupedEntry {
  const char* name;  // "sm90_bf16_grouped"
  const GemmConfig* wide;
  const GemmConfig* thin;  // the partner of each
  int num_configs;
  cudaError_t (*prepare)(int config);
  cudaError_t (*launch)(int config, const DirectGroupedLaunch& launch, int ctas, bool programmatic,
                        cudaStream_t stream);
  const DirectGroupedEntry* finishing = nullptr;  // as GroupedFamilyEntry's
  // For weights that lie along their rows, whatever else is asked for; null: there is none.
  const DirectGroupedEntry* along_rows = nullptr;
};
inline constexpr char kBf16GroupedName[] = "sm90_bf16_grouped";
inline constexpr char kF16GroupedName[] = "sm90_f16_grouped";
inline constexpr char kI8GroupedName[] = "sm90_i8_grouped";
inline constexpr char kFp8RowGroupedName[] = "sm90_fp8row_grouped";
extern const DirectGroupedEntry kSm90Bf16Grouped;
extern const DirectGroupedEntry kSm90F16Grouped;
extern const DirectGroupedEntry kSm90I8Grouped;
extern const DirectGroupedEntry kSm90Fp8RowGrouped;

}  // namespace gemmd::kernels::cuda
