// GemmConfig: how a kernel of the TMA + WGMMA families computes. The same constexpr value is the
// kernel's template argument and its run-time description.
//
// Both families run one kernel (sm90_fp8_gemm.cuh). WGMMA multiplies a "row side" (64 rows an
// instruction) by a "column side" (8 to 256 columns). The tiled family puts A's rows on the row
// side; the skinny family puts the weights B there, so that a batch of 8 fills a tile as well as
// one of 128 does.

#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/ops/float_parts.h"

namespace gemmd::kernels::cuda {

inline constexpr int kBlockK = 128;           // elements of k that share a scale of FP8
inline constexpr int kRowBytes = 128;         // of a k block: what the copy engine swizzles
inline constexpr int kMaxSmemBytes = 232448;  // sm_90, opt-in limit of one block
inline constexpr int kSmemPerSm = 233472;     // sm_90, all blocks of an SM together
inline constexpr int kReservedSmem = 1024;    // what the driver takes of each block
inline constexpr int kBeyond = 0x7fff0000;    // m and n stay below: a tile there is outside D
inline constexpr int kMaxClusterSize = 8;     // portable limit
// A stage of a ring that configs share, and its scales.
inline constexpr int kRingStageBytes = (128 + 256) * kRowBytes;
inline constexpr int kRingScaleBytes = 896;
// Rows of an operand along its rows in a box of the copy engine, which has a k block of them.
inline constexpr int kAlongRowsBox = 64;
// Where CTAs share B: rows of a rest, which they multiply with two wide tiles, and scales of both.
inline constexpr int kRestRows = 32;
inline constexpr int kPairScaleBytes = 768;

enum class GemmFamily : uint8_t { kTiled, kSkinny };

// What the operands are, and how products become sums. Of types that are not promoted the tensor
// cores' own accumulators are the sums (sm90_direct_math.cuh).
enum class Mma : uint8_t {
  kFp8Block,  // E4M3 with a scale for each 128 of k: promoted to FP32 registers
  kBf16,      // FP32 sums
  kF16,       // FP32 sums
  kI8,        // S32 sums, scaled by row and column as they are stored
  kI8Block,   // INT8 with kFp8Block's scales: S32 sums of 128 of k, promoted likewise
  kFp8Row,    // E4M3 with kI8's scales: sums of 128 of k, promoted by addition
  kF32,       // FP32 as BF16 parts: sums of 64 of k, promoted likewise
};

struct GemmConfig {
  GemmFamily family = GemmFamily::kTiled;
  Mma mma = Mma::kFp8Block;
  int rows = 128;    // row-side tile: a multiple of 64 * groups
  int cols = 128;    // column-side tile: a multiple of 8
  int groups = 2;    // math warpgroups along the rows; each owns rows / groups of them
  int k_groups = 1;  // 2: as many again, for the second half of every stage's k blocks
  int stages = 4;    // depth of the TMA ring
  int k_blocks = 1;  // k blocks in a stage; more make longer runs of HBM, for whole k blocks
  int share_cols =
      1;  // CTAs of a cluster, neighbours along the rows, that share a column-side tile
  int share_rows =
      1;  // CTAs of a cluster, neighbours along the columns, that share a row-side tile
  int ctas_per_sm = 1;
  // Tiles begin at any row: the copy engine takes A's scales from a multiple of 16 bytes on, which
  // lies up to three rows in front.
  bool ragged = false;
  // The math warpgroups take turns: each multiplies whole tiles, of which it stores one while the
  // other multiplies the next.
  bool alternates = false;
  // The finish is a gate (sm90_fp8_gate.cuh): B's side of the tile is two boxes of 128 rows, gates
  // and ups, and leaves as 128 columns of E4M3.
  bool gates = false;
  // Tiles of several configs go through one ring: its stages are those of 128 x 256.
  bool shares_ring = false;
  // B has a scale for each of its rows and 128 of k, as A has: a weight's gradient
  // (sm90_fp8_gradient.cuh). FP32 results of a sub-tile leave by the copy engine.
  bool scales_columns = false;
  bool stores_tile = false;  // tiled: a whole tile of D in shared memory, from where the copy
                             // engine takes it while the next one multiplies
  // The math warpgroups have the same rows, and each its part of the columns: half of a wide tile's
  // rows, and as many columns. Of a gate's, each has gates and their ups.
  bool splits_cols = false;
  // Tiles of CTAs in pairs may have a rest, sm90_fp8_rest.cuh; of the skinny family: is one.
  bool takes_rest = false;
  // B lies along its rows, [k, n], and not along k (sm90_along_rows.cuh); with it A may, [k, m].
  bool b_along_rows = false;
  bool a_along_rows = false;

  bool operator==(const GemmConfig&) const = default;

  constexpr bool skinny() const { return family == GemmFamily::kSkinny; }
  // The tile in D's terms.
  constexpr int block_m() const { return skinny() ? cols : rows; }
  constexpr int block_n() const { return skinny() ? rows : cols; }
  // Rows of B in a box of a grouped matmul, where nobody shares it.
  constexpr int b_box() const { return gates ? (skinny() || splits_cols ? 64 : 128) : block_n(); }
  constexpr int multicast() const { return share_cols * share_rows; }
  // A grouped matmul's thin tile, which has a stage of A's rows by one box of as many as there are.
  constexpr bool thin() const { return shares_ring && skinny(); }
  // Thin tiles of fewer columns lie in a stage as those of so many do.
  static constexpr int kThinCols = 64;

  constexpr bool scales_blocks() const { return mma == Mma::kFp8Block || mma == Mma::kI8Block; }
  constexpr bool promotes() const {
    return scales_blocks() || mma == Mma::kFp8Row || mma == Mma::kF32;
  }
  // Sums are scaled by row and column as they are stored.
  constexpr bool scales_results() const { return mma == Mma::kI8 || mma == Mma::kFp8Row; }
  // Of what is multiplied.
  constexpr int element_bytes() const {
    return mma == Mma::kBf16 || mma == Mma::kF16 || mma == Mma::kF32 ? 2 : 1;
  }
  // k blocks that the ring has for each of k: one, or one of each product of parts.
  constexpr int products() const { return mma == Mma::kF32 ? kFloatProducts : 1; }
  constexpr int64_t k_blocks_of(int64_t k) const {
    return (k + block_k() - 1) / block_k() * products();
  }
  // Whether a kernel of this tile can be made for a B along its rows: WGMMA reads 16-bit types so.
  constexpr bool has_along_rows() const {
    const int slice = skinny() ? rows / share_rows : cols / share_cols;  // of B's rows
    return element_bytes() == 2 && products() == 1 && slice % kAlongRowsBox == 0;
  }
  // Likewise with A along its rows, too.
  constexpr bool has_both_along_rows() const {
    const int slice = skinny() ? cols / share_cols : rows / share_rows;  // of A's rows
    return has_along_rows() && slice % kAlongRowsBox == 0;
  }
  // Whether a side of the tile lies along its rows.
  constexpr bool rows_along() const { return skinny() ? b_along_rows : a_along_rows; }
  constexpr bool cols_along() const { return skinny() ? a_along_rows : b_along_rows; }
  // Elements of k in a k block.
  constexpr int block_k() const { return kRowBytes / element_bytes(); }

  // Row sub-tiles of 64 that one warpgroup works through.
  constexpr int row_subs() const {
    return alternates || splits_cols ? rows / 64 : rows / (64 * groups);
  }
  // Columns of one warpgroup.
  constexpr int own_cols() const { return splits_cols ? cols / groups : cols; }
  // Math warps that read a stage.
  constexpr int stage_readers() const { return math_threads() / 32 / (alternates ? groups : 1); }
  // Column sub-tiles likewise, where one's accumulators have to fit: halves, or gates and ups.
  constexpr int col_subs() const { return promotes() && !skinny() && own_cols() == 256 ? 2 : 1; }
  constexpr int mma_cols() const { return own_cols() / col_subs(); }

  // Math warpgroups that need more than an even share of the registers take them from a producer
  // of a whole warpgroup, as setmaxnreg moves them; else one producer warp will do. Its other warps
  // store tiles.
  constexpr bool moves_registers() const {
    return ctas_per_sm == 1 && groups * k_groups > 1 &&
           (stores_tile || result_regs() + accumulator_regs() > 90);
  }
  // Results and those of a rest leave no register: with 8 of the producer's the rest's loop has
  // nothing to spill. A gate has few addresses beside it, and needs none.
  constexpr bool spares_producer() const { return takes_rest && !gates; }
  constexpr int producer_threads() const { return moves_registers() ? 128 : 32; }
  constexpr int producer_registers() const {
    return spares_producer() ? 24 : groups == 3 ? 32 : 40;
  }
  // What a math thread may use: its share of the 512 that each lane of an SM's quarter has.
  constexpr int math_registers() const {
    if (moves_registers()) return groups == 3 ? 160 : spares_producer() ? 240 : 232;
    const int warps_a_quarter = (ctas_per_sm * threads() / 32 + 3) / 4;
    const int share = 512 / warps_a_quarter / 8 * 8;
    return share < 255 ? share : 255;
  }
  constexpr int store_threads() const { return groups * 128; }
  constexpr int math_threads() const { return store_threads() * k_groups; }
  // k blocks of a stage that one math warpgroup multiplies.
  constexpr int blocks_of_group() const { return k_blocks / k_groups; }
  constexpr int threads() const { return math_threads() + producer_threads(); }

  // Registers a math thread holds: results, and beside them the accumulators of one k block.
  constexpr int result_regs() const { return row_subs() * own_cols() / 2; }
  constexpr int accumulator_regs() const { return promotes() ? mma_cols() / 2 : 0; }
  // A warpgroup on its own, with room for two sets and for some 40 registers of everything else,
  // issues the next multiplication before the last one is promoted. Beside another one that is no
  // gain: promotion is slower while its own warp multiplies.
  constexpr bool double_accumulators() const {
    return promotes() && groups * k_groups * row_subs() == 1 &&
           result_regs() + 2 * accumulator_regs() + 40 <= math_registers();
  }

  // Cold, a store's code comes line by line from HBM. Where the way through it is short, every CTA
  // goes it once while its first tiles are on their way. Of the others some do so for CTAs that no
  // tile is left for, which brings it into L2: those whose loop does not lose more by it.
  constexpr bool rehearses() const { return result_regs() <= 32 && !alternates; }
  constexpr bool takes_spares() const {
    return !skinny() && !rehearses() && !stores_tile && !alternates && multicast() == 1;
  }
  // Whether L2 is told which of B and D is to stay. Others have several rows of tiles, and lose 1 %
  // by the question.
  constexpr bool guides_l2() const { return !stores_tile && share_rows == 1; }

  // B's scales in a stage: one for each run of the tile's n. Where tiles begin at multiples of 64 a
  // run is 64; else it is what the tile has of one block of 128, wherever in the tile that begins.
  constexpr int tile_step() const {
    int step = kBlockK;
    while (block_n() % step != 0) step /= 2;
    return step;
  }
  // Of a gate's columns that are split, gates and ups lie beside one another.
  constexpr int b_scale_run() const {
    return tile_step() == 64 || (gates && splits_cols) ? 64 : kBlockK;
  }
  constexpr int b_scale_count() const {
    if (gates) return 2;
    const int run = b_scale_run();
    return (run - tile_step() + block_n() + run - 1) / run;
  }

  // One stage of the ring: for each of its k blocks a row-side tile; the same of the column side;
  // A's scales and B's scales, where blocks have some.
  constexpr int row_bytes() const { return rows * kRowBytes; }
  constexpr int col_bytes() const { return cols * kRowBytes; }
  constexpr int used_bytes() const { return k_blocks * (row_bytes() + col_bytes()); }
  constexpr int stage_bytes() const { return shares_ring ? kRingStageBytes : used_bytes(); }
  // Of half of a wide tile's rows as many as of all: they come by its map.
  constexpr int a_scale_rows() const {
    return (thin() ? kThinCols : block_m()) * (splits_cols ? 2 : 1) + (takes_rest ? kRestRows : 0) +
           (ragged ? 4 : 0);
  }
  constexpr int a_scale_bytes() const { return scales_blocks() ? a_scale_rows() * 4 : 0; }
  constexpr int b_scale_offset() const {
    const int a = k_blocks * a_scale_bytes();
    return takes_rest ? a : (a + 127) / 128 * 128;
  }
  constexpr int b_scale_bytes() const {
    return scales_columns ? (block_n() * 4 + 127) / 128 * 128 : 128;
  }
  constexpr int scale_bytes() const {
    if (takes_rest) return kPairScaleBytes;
    return shares_ring ? kRingScaleBytes : scales_blocks() ? b_scale_offset() + b_scale_bytes() : 0;
  }

  // The result's staging area: 64 columns of n at a time, for each warp's 16 rows (tiled) or each
  // warpgroup's tile (skinny). A pitch of an odd number of 16-byte units keeps stmatrix free of
  // bank conflicts.
  static constexpr int kStorePitch = 64 * 2 + 16;
  static constexpr int kSkinnyPitchF32 = 64 * 4 + 16;
  // Columns of a skinny tile that it takes at a time.
  constexpr int staged_cols() const { return shares_ring && cols > 64 ? 64 : cols; }
  // A rest's rows take shared memory from staging: 8 of a warp's rows at a time, swizzled. Fewer
  // columns of all would leave as half lines, which cost a tile 3500 clocks.
  constexpr bool stages_halves() const { return takes_rest && !skinny(); }
  constexpr int staged_rows() const { return stages_halves() ? 8 : 16; }
  constexpr int store_pitch() const { return stages_halves() ? 64 * 2 : kStorePitch; }
  constexpr int store_group_bytes() const {
    if (takes_rest) return kRestRows * kStorePitch;
    if (!skinny()) return 64 * kStorePitch;
    if (thin()) return kThinCols * kStorePitch;
    return cols > 8 ? staged_cols() * kStorePitch : 8 * kSkinnyPitchF32;
  }
  // Columns of a box of D that the copy engine takes from there: a swizzle's 64, or what makes a
  // row of the box an odd number of 16-byte units, which is as free of conflicts.
  constexpr int store_cols() const {
    if (cols % 64 == 0) return 64;
    int units = cols / 8;
    while (units % 2 == 0) units /= 2;
    return units * 8;
  }
  constexpr int store_bytes() const {
    if (scales_columns) return groups * 64 * cols * 4;
    return stores_tile ? rows * cols * 2 : groups * store_group_bytes();
  }
  // Where the second k group leaves its results for the first.
  constexpr int fold_bytes() const { return (k_groups - 1) * rows * cols * 4; }
  constexpr int smem_bytes() const {
    return 1024 + stages * (stage_bytes() + scale_bytes()) + (store_bytes() + 127) / 128 * 128 +
           fold_bytes() + barrier_bytes();
  }
  constexpr int barrier_bytes() const { return stages * 16 + 16; }
  // Behind them, in the kernel of one problem: the scales of results, sm90_direct_scales.cuh.
  constexpr int result_scale_bytes() const {
    return scales_results() ? groups * 2 * (row_subs() * 64 + cols) * 4 : 0;
  }
  constexpr int dense_smem_bytes() const { return smem_bytes() + result_scale_bytes(); }
  // C by way of the ring (sm90_ring_addend.cuh): in boxes of 64 columns of 16 bits and the tile's
  // rows of D, as many in a stage as there is room for.
  constexpr int add_box_bytes() const { return block_m() * kRowBytes; }
  constexpr int add_boxes() const { return (block_n() + 63) / 64; }
  constexpr int add_boxes_of_stage() const { return stage_bytes() / add_box_bytes(); }
  constexpr int add_stages() const {
    return (add_boxes() + add_boxes_of_stage() - 1) / add_boxes_of_stage();
  }
  constexpr bool adds_by_ring() const {
    return products() == 1 && !splits_cols && !shares_ring && add_boxes_of_stage() > 0 &&
           add_stages() < stages;
  }
  // When a cluster's CTAs divide k, the ring ends as an inbox: from each of the `parts`, in 32
  // bits, the receiver's share of the chunks of 8 columns.
  constexpr int chunk_bytes() const { return rows * 8 * 4; }
  constexpr bool splits(int parts) const {
    return !alternates &&
           parts * ((cols / 8 + parts - 1) / parts) * chunk_bytes() <= stages * stage_bytes();
  }
};

// nvcc 13.0 cannot name a kernel whose template argument is a class: the config as a number.
constexpr uint64_t Encode(const GemmConfig& c) {
  uint64_t code = 0;
  const int kind = static_cast<int>(c.family) | c.stores_tile << 1 | c.ragged << 2 |
                   (static_cast<int>(c.mma) & 3) << 3 | c.alternates << 5 | c.gates << 6 |
                   c.shares_ring << 7 | c.takes_rest << 8 | c.scales_columns << 9 |
                   static_cast<int>(c.mma) >> 2 << 10;
  const int ctas_per_sm = c.ctas_per_sm | c.a_along_rows << 3 | c.b_along_rows << 4;
  for (int field : {kind, c.groups, c.stages, c.share_cols, c.share_rows, ctas_per_sm, c.k_blocks,
                    c.k_groups}) {
    code = code << 5 | field;
  }
  return (code << 9 | c.rows) << 9 | c.cols;
}
constexpr GemmConfig Decode(uint64_t code) {
  GemmConfig c;
  c.cols = code & 511;
  c.rows = code >> 9 & 511;
  code >>= 18;
  for (int* field : {&c.k_groups, &c.k_blocks, &c.ctas_per_sm, &c.share_rows, &c.share_cols,
                     &c.stages, &c.groups}) {
    *field = code & 31;
    code >>= 5;
  }
  c.b_along_rows = c.ctas_per_sm >> 4;
  c.a_along_rows = c.ctas_per_sm >> 3 & 1;
  c.ctas_per_sm &= 7;
  c.family = static_cast<GemmFamily>(code & 1);
  c.stores_tile = code >> 1 & 1;
  c.ragged = code >> 2 & 1;
  c.mma = static_cast<Mma>((code >> 3 & 3) | (code >> 10 & 1) << 2);
  c.alternates = code >> 5 & 1;
  c.gates = code >> 6 & 1;
  c.shares_ring = code >> 7 & 1;
  c.takes_rest = code >> 8 & 1;
  c.scales_columns = code >> 9 & 1;
  return c;
}

}  // namespace gemmd::kernels::cuda
