// GemmConfig: how a kernel of the TMA + WGMMA families computes. The same constexpr value is the
// kernel's template argument and its run-time description.
//
// Both families run one kernel (sm90_fp8_gemm.cuh). WGMMA multiplies a "row side" (64 rows an
// instruction) by a "column side" (8 to 256 columns). The tiled family puts A's rows on the row
// side; the skinny family puts the weights B there, so that a batch of 8 fills a tile as well as
// one of 128 does.

#ifndef GEMMD_KERNELS_CUDA_GEMM_CONFIG_H_
#define GEMMD_KERNELS_CUDA_GEMM_CONFIG_H_

#include <cstdint>

namespace gemmd::kernels::cuda {

inline constexpr int kBlockK = 128;         // elements of k a stage; also the scales' block
inline constexpr int kMaxSmemBytes = 232448;  // sm_90, opt-in limit of one block
inline constexpr int kSmemPerSm = 233472;     // sm_90, all blocks of an SM together
inline constexpr int kReservedSmem = 1024;    // what the driver takes of each block
inline constexpr int kMaxClusterSize = 8;     // portable limit

enum class GemmFamily : uint8_t { kTiled, kSkinny };

struct GemmConfig {
  GemmFamily family = GemmFamily::kTiled;
  int rows = 128;       // row-side tile: a multiple of 64 * groups
  int cols = 128;       // column-side tile: a multiple of 8
  int groups = 2;       // math warpgroups; each owns rows / groups rows
  int stages = 4;       // depth of the TMA ring, one k block each
  int share_cols = 1;   // CTAs of a cluster, neighbours along the rows, that share a column-side tile
  int share_rows = 1;   // CTAs of a cluster, neighbours along the columns, that share a row-side tile
  int ctas_per_sm = 1;
  int col_halves = 1;   // 2: the column side is multiplied in two halves, to save registers
  int store_halves = 1; // 2: the result is staged in two halves, to save shared memory

  constexpr bool skinny() const { return family == GemmFamily::kSkinny; }
  // The tile in D's terms.
  constexpr int block_m() const { return skinny() ? cols : rows; }
  constexpr int block_n() const { return skinny() ? rows : cols; }
  constexpr int multicast() const { return share_cols * share_rows; }

  // Row sub-tiles of 64 that one warpgroup works through.
  constexpr int row_subs() const { return rows / (64 * groups); }
  constexpr int sub_cols() const { return cols / col_halves; }

  constexpr int producer_threads() const { return skinny() ? 32 : 128; }
  constexpr int math_threads() const { return groups * 128; }
  constexpr int threads() const { return math_threads() + producer_threads(); }

  // FP32 registers a math thread holds: results, and the accumulators of one k block.
  constexpr int result_regs() const { return row_subs() * cols / 2; }
  constexpr int accumulator_regs() const { return sub_cols() / 2; }
  // With room for two sets, the next multiplication is issued before the last one is promoted.
  constexpr bool double_accumulators() const {
    return result_regs() + 2 * accumulator_regs() <= (skinny() ? 160 / ctas_per_sm + 0 : 192);
  }

  // Rows of B's scales that one tile may touch.
  constexpr int b_scale_rows() const {
    const int width = block_n();
    const int step = width % 128 == 0 ? 128 : width % 64 == 0 ? 64 : width % 32 == 0 ? 32 : width % 16 == 0 ? 16 : 8;
    return (128 - step + width + 127) / 128;
  }

  // One stage of the ring: row-side tile, column-side tile, A's scales, B's scales.
  constexpr int row_bytes() const { return rows * kBlockK; }
  constexpr int col_bytes() const { return cols * kBlockK; }
  constexpr int a_scale_bytes() const { return (block_m() * 4 + 127) / 128 * 128; }
  constexpr int scale_bytes() const { return a_scale_bytes() + 128; }
  constexpr int stage_bytes() const { return row_bytes() + col_bytes(); }

  // The result's staging area. A pitch of an odd number of 16-byte units keeps stmatrix free of
  // bank conflicts.
  constexpr int store_pitch() const {
    const int bytes = (skinny() ? 64 : cols / store_halves) * 2;
    return bytes % 32 == 0 ? bytes + 16 : bytes;
  }
  constexpr int store_bytes() const {
    // tiled: 16 rows for each warp; skinny: [cols] rows of 64 for each warpgroup.
    return (skinny() ? groups * cols : groups * 64) * store_pitch();
  }
  constexpr int smem_bytes() const {
    const int barriers = stages * 16;
    return 1024 + stages * (stage_bytes() + scale_bytes()) + (store_bytes() + 127) / 128 * 128 + barriers;
  }
  // Partial results of a tile, FP32, kept in the ring while a cluster adds them up.
  constexpr bool splits() const { return rows * cols * 4 <= stages * stage_bytes(); }
};

constexpr bool operator==(const GemmConfig& x, const GemmConfig& y) {
  return x.family == y.family && x.rows == y.rows && x.cols == y.cols && x.groups == y.groups &&
         x.stages == y.stages && x.share_cols == y.share_cols && x.share_rows == y.share_rows &&
         x.ctas_per_sm == y.ctas_per_sm && x.col_halves == y.col_halves &&
         x.store_halves == y.store_halves;
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_GEMM_CONFIG_H_
