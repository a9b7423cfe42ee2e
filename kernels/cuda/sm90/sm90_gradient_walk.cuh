// The order in which a gradient's tiles are computed. Groups of few columns are nothing but
// results: if all CTAs stored theirs at one time, the tensor cores would wait for memory. So each
// CTA spreads its tiles of short groups among those of long ones, and CTAs begin at different
// places.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_GRADIENT_WALK_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_GRADIENT_WALK_CUH_

#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

struct GradientWalk {
  // Columns up to which storing a group's tile takes longer than multiplying it.
  static constexpr int kShortColumns = 768;
  static constexpr uint32_t kWarp = 0xffffffffu;

  const GradientLaunch& launch;
  int cluster;
  int lane;

  // Of groups [first, first + 32), those of many columns, or the others.
  __device__ __forceinline__ uint32_t Groups(int groups, int first, bool many) const {
    const int group = first + lane;
    const bool in = group < groups && (launch.sizes[group] > kShortColumns) == many;
    return __ballot_sync(kWarp, in);
  }
  // The `number`-th of those, of which there are more.
  __device__ __forceinline__ int Find(int groups, bool many, int number) const {
    int first = 0;
    uint32_t found = Groups(groups, first, many);
    while (number >= __popc(found)) {
      number -= __popc(found);
      first += 32;
      found = Groups(groups, first, many);
    }
    const bool mine = (found >> lane & 1) != 0 && __popc(found & ((1u << lane) - 1)) == number;
    return first + __ffs(static_cast<int>(__ballot_sync(kWarp, mine))) - 1;
  }

  // The index among all tiles of the cluster's tile number `i`; below 0 behind its last. By a whole
  // warp.
  __device__ __forceinline__ int At(int i) const {
    const int clusters = launch.clusters, count = launch.tiles.count;
    const int plain = i * clusters + cluster;
    if (plain >= count) return -1;
    if (!launch.mixes) return plain;
    const int of_group = static_cast<int>(launch.tiles.per_batch.value);
    const int groups = Divide(count, launch.tiles.per_batch);
    int longs = 0;
#pragma unroll 1
    for (int first = 0; first < groups; first += 32) longs += __popc(Groups(groups, first, true));
    if (longs == 0 || longs == groups) return plain;
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
    const int number = (is_short ? own_long + shorts : i - shorts) * clusters + cluster;
    const int rank = Divide(number, launch.tiles.per_batch);
    const int group = Find(groups, !is_short, is_short ? rank - longs : rank);
    return group * of_group + number - rank * of_group;
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_GRADIENT_WALK_CUH_
