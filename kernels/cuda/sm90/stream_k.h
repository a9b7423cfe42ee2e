// Stream-k: all k blocks of all tiles in one line, of which every CTA takes an equal part, so that
// no SM idles behind the last tile. Where two CTAs meet in a tile one leaves its sums in memory,
// and the other adds them up and stores.
//
// CTAs walk in teams. A team's CTAs take the tiles of one stretch of weights side by side, one a
// tile of rows, so that the weights come from memory once. The line is of what a team takes at one
// time: along n, one band of rows after the other.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/sm90/gemm_family.h"

namespace gemmd::kernels::cuda {

// A part of a tile of fewer k blocks is left to the neighbour: sums that cross cost more.
inline constexpr int kLeastStreamSteps = 4;
// The fewest k blocks of a tile that is worth dividing.
inline constexpr int kLeastStreamTile = 16;
// How many k blocks a team's part has to be longer than a tile for a tile's other sums to be there
// before its last k blocks begin: what it takes for them to cross.
inline constexpr int kStreamCrossingSteps = 8;
// In front of the scratch memory, zero between kernels: a word for each warpgroup of a CTA, set
// while its sums wait to be taken.
inline constexpr int kStreamFlags = 512;
inline constexpr int64_t kStreamFlagBytes = kStreamFlags * sizeof(uint32_t);

// Team t takes steps [t * step + min(t, extra), ..) of the line, less what StreamWalk rounds.
struct StreamK {
  float4* partials = nullptr;  // a tile's sums for each CTA
  uint32_t* flags = nullptr;
  Divisor team;        // CTAs of one
  Divisor tile_steps;  // k blocks of a tile
  int step = 0;
  int extra = 0;
  // Where sums are promoted: the others' sums of a tile are there before its last k blocks begin,
  // and come while the first of these multiplies.
  bool takes_first = false;
};

// Its tiles are those of a team: `team` times as many rows of A as the config has.
struct StreamLaunch : GemmLaunch {
  StreamK stream;
};

// How a problem is divided among the CTAs that run at once.
struct StreamTeams {
  int team = 1;   // CTAs
  int bands = 1;  // of rows of A
  int teams = 1;
  int64_t steps = 0;    // of the line
  int64_t longest = 0;  // of one team
};

// `m_tiles` along A's rows, `lines` along the weights' and through the batch, of `tile_steps` each.
// The shortest walk of those that read the weights for many rows at a time.
inline StreamTeams TeamsOf(const GemmConfig& shape, int64_t m_tiles, int64_t lines,
                           int64_t tile_steps, int at_once) {
  constexpr int64_t kRowsOfTeam = 384;  // fewer would wait for memory
  constexpr int64_t kMostOfTeam = 16;
  const int64_t most = std::min<int64_t>(kMostOfTeam, at_once);
  StreamTeams best;
  for (int64_t team = std::min(m_tiles, most); team >= 1; --team) {
    if (best.longest > 0 && team * shape.block_m() < kRowsOfTeam) break;
    const int64_t bands = (m_tiles + team - 1) / team;
    const int64_t steps = bands * lines * tile_steps;
    const int64_t teams = std::clamp<int64_t>(steps / (2 * kLeastStreamSteps), 1, at_once / team);
    const int64_t longest = (steps + teams - 1) / teams;
    // Wider teams are the better ones where the walk is as long.
    if (best.longest > 0 && longest >= best.longest * 99 / 100) continue;
    best = {static_cast<int>(team), static_cast<int>(bands), static_cast<int>(teams), steps,
            longest};
  }
  return best;
}

// The line of tiles of `tile_steps` k blocks, divided so. Memory is the caller's to add.
inline StreamK LineOf(const StreamTeams& teams, int64_t tile_steps) {
  StreamK line;
  line.team = MakeDivisor(teams.team);
  line.tile_steps = MakeDivisor(tile_steps);
  line.step = static_cast<int>(teams.steps / teams.teams);
  line.extra = static_cast<int>(teams.steps % teams.teams);
  line.takes_first = line.step >= tile_steps + kStreamCrossingSteps;
  return line;
}

// One .cu, as GemmFamilyEntry tells of it. Its launch takes a StreamLaunch.
struct StreamFamilyEntry {
  GemmFamilyEntry family;
  cudaError_t (*launch)(int config, const StreamLaunch& launch, cudaStream_t stream);
  const StreamFamilyEntry* finishing;  // as GemmFamilyEntry's
  const StreamFamilyEntry* along_rows;
  const StreamFamilyEntry* both_along_rows;
};

extern const StreamFamilyEntry kSm90Bf16Stream;
extern const StreamFamilyEntry kSm90F16Stream;
extern const StreamFamilyEntry kSm90Fp8Stream;
extern const StreamFamilyEntry kSm90Fp8RowStream;
inline constexpr int kNumStreamFamilies = 4;
inline const StreamFamilyEntry* const kStreamFamilies[kNumStreamFamilies] = {
    &kSm90Bf16Stream, &kSm90F16Stream, &kSm90Fp8Stream, &kSm90Fp8RowStream};

}  // namespace gemmd::kernels::cuda
