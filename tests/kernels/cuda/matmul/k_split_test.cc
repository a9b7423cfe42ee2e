// Every split of the pool's configs: k is covered once, and no inbox is written while its stages
// are still to be read.

#include "kernels/cuda/sm90/k_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/sm90/gemm.h"
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

}  // namespace
}  // namespace gemmd::kernels::cuda
