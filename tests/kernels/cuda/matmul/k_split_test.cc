// Every split of the pool's configs: k is covered once, and no inbox is written while its stages
// are still to be read.

#include "kernels/cuda/sm90/k_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/sm90/stream/stream_line.h"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {
namespace {

// The last of `steps` stages that a ring's place `stage` holds, counted from 0; -1 for none.
int LastUse(int stage, int steps, int ring) {
  if (stage >= steps) return -1;
  return stage + (steps - 1 - stage) / ring * ring;
}

TEST(KSplitTest, AnInboxIsFreeWhenItIsSaidToBe) {
  int early = 0;
  for (const GemmVariant& variant : AllVariants()) {
    if (variant.split == 1) continue;
    const GemmConfig& shape = variant.shape();
    for (int stages = variant.split; stages < variant.split * shape.stages * 3; ++stages) {
      const KSplit split = SplitOf(shape, variant.split, stages);
      int covered = 0;
      for (int part = 0; part < split.parts; ++part) {
        const int steps = split.step + (part < split.extra ? 1 : 0);
        covered += steps;
        const int chunks = split.chunks[part + 1] - split.chunks[part];
        const int begin = split.inbox[part] * shape.stage_bytes();
        const int end = begin + split.parts * chunks * shape.chunk_bytes();
        ASSERT_LE(end, shape.stages * shape.stage_bytes()) << Name(variant);
        // Said in time: never more stages than there are.
        ASSERT_LE(split.inbox_free[part], steps) << Name(variant);
        early += split.inbox_free[part] < steps;
        for (int stage = 0; stage < shape.stages; ++stage) {
          const bool taken =
              begin < (stage + 1) * shape.stage_bytes() && stage * shape.stage_bytes() < end;
          if (!taken) continue;
          ASSERT_LT(LastUse(stage, steps, shape.stages), std::max(split.inbox_free[part], 0))
              << Name(variant) << " of " << stages << " stages, part " << part << ", place "
              << stage;
        }
      }
      ASSERT_EQ(covered, stages);
      ASSERT_EQ(split.chunks[split.parts], shape.cols / 8);
    }
  }
  EXPECT_GT(early, 0);
}

TEST(StreamTeamsTest, CoverEveryTileWithTheCtasThatThereAre) {
  for (const StreamFamilyEntry* family : kStreamFamilies) {
    for (int i = 0; i < family->family.num_configs; ++i) {
      const GemmConfig& shape = family->family.configs[i];
      for (int64_t m_tiles : {1, 2, 3, 9, 16, 17, 33, 100}) {
        for (int64_t lines : {1, 5, 20, 200}) {
          for (int64_t tile_steps : {16, 113, 400}) {
            const StreamTeams teams = TeamsOf(shape, m_tiles, lines, tile_steps, 132);
            EXPECT_LE(teams.team * teams.teams, 132);
            EXPECT_GE(teams.team * teams.bands, m_tiles);
            EXPECT_LT(teams.team * (teams.bands - 1), m_tiles) << "a band without a tile";
            EXPECT_EQ(teams.steps, teams.bands * lines * tile_steps);
            EXPECT_GE(teams.longest * teams.teams, teams.steps);
            EXPECT_LT((teams.longest - 1) * teams.teams, teams.steps);
            EXPECT_TRUE(teams.team == m_tiles || teams.team * shape.block_m() >= 384 ||
                        m_tiles > 16)
                << "weights are read for few rows at a time";
          }
        }
      }
    }
  }
}

// 100 tiles of 128 x 256 on 132 SMs: a wave would take as long as 132 of them.
TEST(StreamTeamsTest, LeaveHardlyAnSmWithoutWork) {
  const GemmConfig shape = {.rows = 128, .cols = 256};
  const StreamTeams teams = TeamsOf(shape, 5, 20, 400, 132);
  EXPECT_EQ(teams.team, 5);
  EXPECT_LT(teams.longest, 400 * 0.78);
}

// A tile's part as a team meets it, and how many k blocks the team has behind it by then.
struct Visit {
  int tile, from, to;
  int done;
};

std::vector<Visit> VisitsOf(const StreamK& line, int team) {
  std::vector<Visit> visits;
  int done = 0;
  for (StreamPart part(line, team); part.valid(); part.Next()) {
    visits.push_back({part.tile, part.from, part.to, done});
    done += part.to - part.from;
  }
  return visits;
}

std::vector<int> TakenBy(const StreamK& line, int team, int tile) {
  std::vector<int> taken;
  for (StreamPart part(line, team); part.valid(); part.Next()) {
    if (part.tile == tile) part.EachBefore([&](int other) { taken.push_back(other); });
  }
  return taken;
}

// What kernels count on, of one line: each k block is somebody's; a team leaves one tile's sums at
// most, and first, so that nobody's are overwritten before they are taken; it waits for lower
// numbers alone, behind all else; and all sums that are left are taken once, so that flags end as
// they were.
void ExpectEachStepOnceAndNoWaitInACircle(const StreamTeams& teams, int tile_steps) {
  const StreamK line = LineOf(teams, tile_steps);
  std::vector<int> covered(teams.steps / tile_steps,
                           0);             // k blocks of each tile, from its first on
  std::vector<int> left(teams.teams, -1);  // the tile whose sums a team leaves
  std::vector<int> taken(teams.teams, 0);
  for (int team = 0; team < teams.teams; ++team) {
    const std::vector<Visit> visits = VisitsOf(line, team);
    for (size_t i = 0; i < visits.size(); ++i) {
      const auto [tile, from, to, done] = visits[i];
      ASSERT_LT(from, to);
      ASSERT_EQ(from, covered[tile]) << "teams take a tile's k in their order";
      covered[tile] = to;
      if (to < tile_steps) {
        EXPECT_EQ(i, 0u) << "sums are left by the first tile alone";
        left[team] = tile;
        continue;
      }
      if (from == 0) continue;
      EXPECT_EQ(i, visits.size() - 1) << "only the last tile's sums are waited for";
      const std::vector<int> others = TakenBy(line, team, tile);
      int nearest = team;
      int joined = from;
      for (int other : others) {
        ASSERT_LT(other, nearest) << "always in the same order";
        nearest = other;
        EXPECT_EQ(left[other], tile);
        ++taken[other];
        const Visit gave = VisitsOf(line, other)[0];
        EXPECT_EQ(gave.to, joined);
        joined = gave.from;
        if (!line.takes_first) continue;
        EXPECT_EQ(others.size(), 1u);
        EXPECT_LE(gave.to - gave.from, done) << "they are there before the last part begins";
      }
      EXPECT_EQ(joined, 0);
    }
  }
  for (int steps : covered) EXPECT_EQ(steps, tile_steps);
  for (int team = 0; team < teams.teams; ++team) EXPECT_EQ(taken[team], left[team] >= 0);
}

TEST(StreamLineTest, EveryKBlockIsOneTeamsAndSumsCrossToHigherNumbersOnce) {
  std::mt19937 random(7);
  const auto between = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int with_sums_first = 0;
  for (const StreamFamilyEntry* family : kStreamFamilies) {
    for (int i = 0; i < family->family.num_configs; ++i) {
      const GemmConfig& shape = family->family.configs[i];
      for (int trial = 0; trial < 400; ++trial) {
        const int sms = trial % 4 == 0 ? between(1, 170) : 132;
        const int ctas = std::min(sms, kStreamFlags / shape.groups);
        const int m_tiles = between(1, trial % 3 == 0 ? 40 : 6);
        const int lines = between(1, trial % 5 == 0 ? 400 : 60);
        const int tile_steps = between(kLeastStreamTile, trial % 2 == 0 ? 300 : 60);
        SCOPED_TRACE(testing::Message() << m_tiles << " x " << lines << " tiles of " << tile_steps
                                        << " on " << ctas << " CTAs");
        const StreamTeams teams = TeamsOf(shape, m_tiles, lines, tile_steps, ctas);
        ASSERT_LE(teams.team * teams.teams * shape.groups, kStreamFlags);
        ExpectEachStepOnceAndNoWaitInACircle(teams, tile_steps);
        if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
        with_sums_first += LineOf(teams, tile_steps).takes_first;
      }
    }
  }
  EXPECT_GT(with_sums_first, 100) << "one of two ways was hardly tried";
}

}  // namespace
}  // namespace gemmd::kernels::cuda
