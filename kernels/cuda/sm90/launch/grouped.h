// Grouped matmuls on the device: the directory, which turns `groups` into lists of tiles, and the
// kernels that walk them. Plain data: shared by host and device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/cuda/sm90/launch/group_cut.h"
#include "kernels/cuda/sm90/launch/grouped_table.h"
#include "kernels/data_fault.h"

namespace gemmd::kernels::cuda {

inline constexpr int kMostGroups = 512;

// The numbers equal gemmd::kernels::GroupLayout's.
enum class GroupLayoutType : int32_t { kOffsets = 0, kCounts = 1, kRowIds = 2, kEnds = 3 };

// Rows of one group that a CTA multiplies at a time.
struct GroupTile {
  int32_t group;
  int32_t item;     // of a batched a and d
  int32_t row0;     // within the item
  int32_t row_end;  // rows from here on are not stored
};

// A list of tiles: `count[0]` of them.
struct TileList {
  int32_t* count = nullptr;
  GroupTile* tiles = nullptr;
};

// What the directory kernel reads and makes. Groups of more than `most_rows[0]` rows go to list 1,
// in tiles of tile_rows[1]; the others to list 0, in tiles of tile_rows[0].
struct DirectoryArgs {
  const int32_t* index = nullptr;
  GroupLayoutType layout = GroupLayoutType::kOffsets;
  int32_t groups = 0;
  int32_t rows = 0;  // of a, or of one of its items
  int32_t alignment = 1;
  int32_t step = 1;  // a group that starts at no multiple of it cannot be (columns)
  int32_t most_thin_rows = 0;
  int32_t tile_rows[kTileLists] = {1, 1};
  TileList lists[kTileLists];
  int32_t* starts = nullptr;  // [groups], rising for all layouts but kCounts: where rows begin
  int32_t* sizes = nullptr;   // [groups]
  DataFault* fault = nullptr;
  bool programmatic = false;
};
cudaError_t LaunchDirectory(const DirectoryArgs& args, cudaStream_t stream);

// owners[row] = the group that the row belongs to, or -1; rows of all items, one behind the other.
struct OwnersArgs {
  const int32_t* starts = nullptr;
  const int32_t* sizes = nullptr;
  int32_t groups = 0;
  bool counts = false;  // items of `rows` rows
  int32_t rows = 0;
  int64_t all_rows = 0;
  int32_t* owners = nullptr;
};
cudaError_t LaunchOwners(const OwnersArgs& args, cudaStream_t stream);

// sm90_any_grouped: everything that AnyGemm takes. a's batch are its items, b's the groups.
inline constexpr char kAnyGroupedName[] = "sm90_grouped_matmul";
struct AnyGroupedArgs {
  AnyGemmArgs gemm;                    // m: rows of an item; its batch is not looked at
  int64_t bias_group = 0;              // elements between two groups' biases
  const GroupMatrix* table = nullptr;  // of each group, instead of gemm.b's places
  TileList list;
  int64_t most_tiles = 0;  // that the list can have
};
cudaError_t LaunchAnyGrouped(const AnyGroupedArgs& args, cudaStream_t stream);
inline constexpr int kAnyGroupedRows = 64;

// Where a kernel reads its groups: in the op's own numbers, which it checks as it does so, or as
// the directory kernel left them.
struct GroupSource {
  const int32_t* index = nullptr;   // offsets, or counts where there are items; null: the next two
  const int32_t* starts = nullptr;  // [groups]
  const int32_t* sizes = nullptr;   // [groups]
  int32_t groups = 0;
  int32_t rows = 0;            // of a, or of one of its items
  bool items = false;          // group g has rows of item g of a and d, from 0 on
  DataFault* fault = nullptr;  // told of numbers that cannot be
};

// Tiles of a grouped matmul that no CTA has taken yet, and CTAs that found none left. Zero between
// kernels: the last CTA leaves them so.
struct TileTickets {
  int32_t next;
  int32_t done;
};
// Bytes in front of an op's scratch memory that hold them: zero when a stream begins.
inline constexpr int64_t kScratchHead = 256;

// Rows of A in a box where they are columns of the product: of few rows no more is fetched.
inline constexpr int kRowsABox = 16;

// The TMA kernel. `gemm` as for a dense launch: args (d and scales of items) and k blocks; its maps
// are those of wide tiles, its tiles are not looked at. b's batch stride leads from group to group.
struct GroupedLaunch {
  GemmLaunch gemm;
  CUtensorMap a_rows_map;  // kRowsABox rows of a k block of A
  // As many, twice as many, .. rows of all of a thin tile's k blocks; where any_k, of one.
  CUtensorMap thin_a_maps[kThinRows / kRowsABox];
  CUtensorMap thin_b_map;  // a k block
  CUtensorMap thin_scale_map;
  GroupSource source;
  TileTickets* tickets = nullptr;
  GatedArgs gated;       // of kernels whose finish is a gate: where the result goes
  Divisor period_tiles;  // likewise: tiles of gates that lie together, in front of as many of ups
  int n_tiles = 1;       // along the weights' rows: wide ones, or pairs of them
  bool any_k = false;    // k is no multiple of 128: a box has one k block, at its column
  // The groups, the weights, their scales and the bias were there before the kernel in front went
  // to work: no need to wait for its end before reading them.
  bool weights_first = false;
  // Of thin tiles: k blocks of the weights that each CTA reads before L2 is told to evict them
  // first.
  int clearing_blocks = 0;
  // Of groups with more than a thin tile's rows, where tiles are of any size.
  int grain = kGrainThatFills;
  int64_t bias_group_bytes = 0;  // between two groups' biases
  // By group, where matrices lie apart; null: they are one tensor.
  const GroupMatrix* table = nullptr;
  const CUtensorMap* b_maps[kTileLists] = {};
};

// Both kinds of tiles are one kernel's.
struct GroupedFamilyEntry {
  const char* name;           // "sm90_fp8_grouped"
  const GemmConfig* configs;  // [kTileLists]
  int a_box_rows;             // in a box of gemm.row_map
  int b_box_rows;             // in one of gemm.col_map
  int step_n;                 // rows of the weights for each of GroupedLaunch::n_tiles
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const GroupedLaunch& launch, int ctas, bool programmatic,
                        cudaStream_t stream);
  // The same configs' kernel for what NeedsFinish(); null: it has none.
  const GroupedFamilyEntry* finishing = nullptr;
};
extern const GroupedFamilyEntry kSm90Fp8Grouped;
extern const GroupedFamilyEntry kSm90Fp8GroupedGate;
// The same for groups of many rows; each has one config.
extern const GroupedFamilyEntry kSm90Fp8Ragged;
extern const GroupedFamilyEntry kSm90Fp8Pairs;
extern const GroupedFamilyEntry kSm90Fp8PairsRest;
extern const GroupedFamilyEntry kSm90Fp8PairsGate;
inline constexpr char kFp8GroupedName[] = "sm90_fp8_grouped";
// The same of INT8 with block scales.
extern const GroupedFamilyEntry kSm90I8BlockGrouped;
extern const GroupedFamilyEntry kSm90I8BlockRagged;
extern const GroupedFamilyEntry kSm90I8BlockPairs;
inline constexpr char kI8BlockGroupedName[] = "sm90_i8block_grouped";
inline constexpr int kThinTile = 0;
inline constexpr int kWideTile = 1;
// As a wide tile, of half as many rows.
inline constexpr int kHalfTile = 2;
// One of two wide tiles of the same columns, whose CTAs share B.
inline constexpr int kPairTile = 3;
// As a pair's, and between the two tiles' rows a few more, which are both CTAs'.
inline constexpr int kRestTile = 4;
// Rows of B in a box where CTAs work in pairs.
inline constexpr int kPairBox = 128;

}  // namespace gemmd::kernels::cuda
