// How a group's rows are cut into tiles. Plain arithmetic: shared by host and device.
//
// Tiles of one group that share its weights begin beside one another, and the first finds them in
// L2 for the others. So what is left behind wide tiles is half of one, whose stages have all of the
// wide one's columns, and no thin tile, which goes through its own at another pace.

#pragma once

namespace gemmd::kernels::cuda {

// Rows of A in a tile. Thin ones have 128 rows of the weights on WGMMA's row side; wide and half
// ones have A's rows there, and 256 of the weights.
inline constexpr int kThinRows = 64, kWideRows = 128, kHalfRows = 64;

// Into what groups of more than kThinRows rows are cut. Of few tiles, finer ones leave fewer SMs
// idle, and take more time together.
enum class Grain : int { kWide = 0, kHalves = 1, kThin = 2 };
inline constexpr int kGrains = 3;
inline constexpr int kGrainThatFills = -1;  // in place of one: whichever fills the SMs

// Tiles by the same weights, in this order.
struct GroupCut {
  int wide = 0;
  int half = 0;  // with wide tiles 0 or 1
  int thin = 0;  // and then there are no others
};

constexpr GroupCut CutOf(int rows, Grain grain = Grain::kWide) {
  if (rows <= kThinRows) return {.thin = rows > 0};
  static_assert(kThinRows == kHalfRows);
  const int fine = (rows + kThinRows - 1) / kThinRows;
  if (grain == Grain::kThin) return {.thin = fine};
  if (grain == Grain::kHalves) return {.half = fine};
  const int wide = rows / kWideRows, left = rows - wide * kWideRows;
  if (left > 0 && left <= kHalfRows) return {.wide = wide, .half = 1};
  return {.wide = wide + (left > 0)};
}

// Clocks for a tile, where there are few of them: as fitted to 69 times of 23 shapes. With a gate a
// thin tile has as many of the weights' rows as a wide one.
constexpr int TileClocks(int grain, int k_blocks, bool gated) {
  constexpr int kEach[kGrains] = {1200, 880, 520}, kOnce[kGrains] = {1000, 1000, 2400};
  const int like = gated && grain > 1 ? 1 : grain;
  return kEach[like] * k_blocks + kOnce[like];
}

// For all tiles, by SMs that each take the next one when they are free: `fine` of groups with more
// than kThinRows rows, `thin` of the others. Full rounds where all are alike; else the mean, and
// half a fine one that is among the last.
constexpr float AllClocks(int fine, int fine_clocks, int thin, int thin_clocks, int sms) {
  if (fine + thin <= sms) return 1.0f * fine_clocks;
  if (thin == 0 || fine_clocks == thin_clocks) {
    return 1.0f * ((fine + thin - 1) / sms + 1) * fine_clocks;
  }
  return (1.0f * fine * fine_clocks + 1.0f * thin * thin_clocks) / sms + 0.5f * fine_clocks;
}

// The grain by which all tiles are done first: `fine` has as many as each makes. Where wide ones
// are more than the SMs, nothing is gained, and finer ones ask more of L2.
constexpr Grain GrainOf(const int (&fine)[kGrains], int thin, int k_blocks, bool gated, int sms) {
  constexpr float kWorthIt = 0.95f;
  if (fine[0] == 0 || fine[0] > sms) return Grain::kWide;
  const int thin_clocks = TileClocks(kGrains - 1, k_blocks, gated);
  int best = 0;
  float least = 0;
  for (int grain = 0; grain < kGrains; ++grain) {
    const float all =
        AllClocks(fine[grain], TileClocks(grain, k_blocks, gated), thin, thin_clocks, sms);
    if (grain > 0 && all >= least) continue;
    best = grain;
    least = grain == 0 ? all * kWorthIt : all;
  }
  return static_cast<Grain>(best);
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
