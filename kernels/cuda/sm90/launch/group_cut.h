// How a group's rows are cut into tiles. Plain arithmetic: shared by host and device.
//
// Tiles of one group that share its weights begin beside one another, and the first finds them in
// L2 for the others. So what is left behind wide tiles is half of one, whose stages have all of the
// wide one's columns, and no thin tile, which goes through its own at another pace.

#ifndef GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_
#define GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_

namespace gemmd::kernels::cuda {

// Rows of A in a tile. Thin ones have 128 rows of the weights on WGMMA's row side; wide and half
// ones have A's rows there, and 256 of the weights.
inline constexpr int kThinRows = 64, kWideRows = 128, kHalfRows = 64;

// Tiles by the same weights, in this order.
struct GroupCut {
  int wide = 0;
  int half = 0;  // 0 or 1
  int thin = 0;  // 0 or 1, and then there are no others
};

constexpr GroupCut CutOf(int rows) {
  if (rows <= kThinRows) return {.thin = rows > 0};
  const int wide = rows / kWideRows, left = rows - wide * kWideRows;
  if (left > 0 && left <= kHalfRows) return {.wide = wide, .half = 1};
  return {.wide = wide + (left > 0)};
}

// The same for CTAs in pairs: two wide tiles of the same columns, of which the last two may have up
// to kMostRest rows between them, or what CutOf leaves beside pairs.
inline constexpr int kMostRest = 32;

struct PairCut {
  int pairs = 0;
  int rest = 0;  // rows, of the last pair
  int wide = 0;  // 0 or 1, as is half; rows of a thin tile are half of a wide one here
  int half = 0;
};

constexpr PairCut PairCutOf(int rows, bool takes_rest) {
  constexpr int kPairRows = 2 * kWideRows;
  const int whole = rows / kPairRows, left = rows - whole * kPairRows;
  if (takes_rest && whole > 0 && left > 0 && left <= kMostRest)
    return {.pairs = whole, .rest = left};
  const GroupCut cut = CutOf(rows);
  return {.pairs = cut.wide / 2, .wide = cut.wide % 2, .half = cut.half + cut.thin};
}

// The same for groups of many rows: tiles of three units, and of two where else a single one would
// be left. A group of one unit has a tile of two.
inline constexpr int kUnitRows = 64, kMostUnits = 3;

struct ManyRowsCut {
  int tiles;
  int whole;  // of three units, in front of the others; below 0 with a single unit

  constexpr explicit ManyRowsCut(int rows)
      : tiles((rows + kMostUnits * kUnitRows - 1) / (kMostUnits * kUnitRows)),
        whole((rows + kUnitRows - 1) / kUnitRows - 2 * tiles) {}
  constexpr int Units(int tile) const { return tile < whole ? 3 : 2; }
  constexpr int FirstUnit(int tile) const {
    return 2 * tile + (whole < 0 ? 0 : tile < whole ? tile : whole);
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_
