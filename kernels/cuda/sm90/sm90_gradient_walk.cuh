// Which of a gradient's tiles are computed, and in which order. Groups of few columns are nothing
// but results: if all CTAs stored theirs at one time, the tensor cores would wait for memory. So
// each CTA spreads its tiles of short groups among those of long ones, and CTAs begin at different
// places. Of a group without columns nothing is computed where D holds C already.

#pragma once

#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

struct GradientWalk {
  // Columns up to which storing a group's tile takes longer than multiplying it.
  static constexpr int kShortColumns = 768;
  static constexpr uint32_t kWarp = 0xffffffffu;
  enum Kind { kLong = 1, kShort = 2, kBoth = kLong | kShort };

  const GradientLaunch& launch;
  int cluster;
  int lane;

  // Of groups [first, first + 32), those of a kind. One whose results are there already is of none.
  __device__ __forceinline__ uint32_t Groups(int groups, int first, Kind kind) const {
    const int group = first + lane;
    const int columns = group < groups ? launch.sizes[group] : 0;
    const bool some = columns > 0 || (group < groups && !launch.keeps);
    return __ballot_sync(kWarp, some && (kind & (columns > kShortColumns ? kLong : kShort)) != 0);
  }
  __device__ __forceinline__ int Count(int groups, Kind kind) const {
    int count = 0;
#pragma unroll 1
    for (int first = 0; first < groups; first += 32) count += __popc(Groups(groups, first, kind));
    return count;
  }
  // The `number`-th of those, of which there are more.
  __device__ __forceinline__ int Find(int groups, Kind kind, int number) const {
    int first = 0;
    uint32_t found = Groups(groups, first, kind);
    while (number >= __popc(found)) {
      number -= __popc(found);
      first += 32;
      found = Groups(groups, first, kind);
    }
    const bool mine = (found >> lane & 1) != 0 && __popc(found & ((1u << lane) - 1)) == number;
    return first + __ffs(static_cast<int>(__ballot_sync(kWarp, mine))) - 1;
  }

  // The index among all tiles of the cluster's tile number `i`; below 0 behind its last. By a whole
  // warp.
  __device__ __forceinline__ int At(int i) const {
    const int clusters = launch.clusters;
    int number = i * clusters + cluster;
    if (number >= launch.tiles.count) return -1;
    if (!launch.mixes && !launch.keeps) return number;
    const int of_group = static_cast<int>(launch.tiles.per_batch.value);
    const int groups = Divide(launch.tiles.count, launch.tiles.per_batch);
    const int longs = Count(groups, kLong), all_groups = longs + Count(groups, kShort);
    const int count = all_groups * of_group;
    if (number >= count) return -1;
    Kind kind = kBoth;
    int before = 0;  // groups in front of the kind's first
    if (launch.mixes && longs > 0 && longs < all_groups) {
      // Numbered with long groups in front every cluster has its share of both.
      const int own = (count - cluster + clusters - 1) / clusters;
      const int own_long = (max(longs * of_group - cluster, 0) + clusters - 1) / clusters;
      const int own_short = own - own_long;
      const int in_front = own_short * cluster / clusters, rest = own_short - in_front;
      int shorts = i;
      bool is_short = i < in_front;
      if (!is_short) {
        const int j = i - in_front, all = own - in_front;
        const int among = j * rest / all;
        is_short = (j + 1) * rest / all > among;
        shorts = in_front + among;
      }
      number = (is_short ? own_long + shorts : i - shorts) * clusters + cluster;
      kind = is_short ? kShort : kLong;
      before = is_short ? longs : 0;
    }
    const int rank = Divide(number, launch.tiles.per_batch);
    return Find(groups, kind, rank - before) * of_group + number - rank * of_group;
  }
};

}  // namespace gemmd::kernels::cuda
