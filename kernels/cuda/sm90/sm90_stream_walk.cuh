// A CTA's part of stream_k.h's line, and how sums cross between CTAs that meet in a tile.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_STREAM_WALK_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_STREAM_WALK_CUH_

#include "kernels/cuda/ptx/flag.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

// From the end of the part to its beginning: the first tile, of which another CTA has the last k
// blocks, is left for it early, and the last one, whose sums this CTA adds up, finds the others'
// there. A CTA waits for those of lower numbers alone, which were started before it.
template <GemmConfig C>
struct StreamWalk {
  const StreamLaunch& launch;
  int team;
  int member;
  int begin;  // of the line's steps
  int end;
  int tile;  // the team's; of it k blocks [from, to)
  int from;
  int to;

  __device__ StreamWalk(const StreamLaunch& launch, int cta) : launch(launch) {
    const int size = static_cast<int>(launch.stream.team.value);
    team = Divide(cta, launch.stream.team);
    member = cta - team * size;
    begin = Bound(team);
    end = Bound(team + 1);
    tile = Divide(max(end - 1, 0), launch.stream.tile_steps);
    Aim();
  }

  __device__ int tile_steps() const { return static_cast<int>(launch.stream.tile_steps.value); }
  __device__ bool valid() const { return from < to; }
  __device__ bool EndsTile() const { return to == tile_steps(); }
  __device__ void Next() {
    --tile;
    Aim();
  }

  __device__ __forceinline__ Tile At(const ClusterPlace<C>& place) const {
    Tile at = TileAt<C>(launch.tiles, tile, place);
    int& m = C.skinny() ? at.col0 : at.row0;
    m = m * static_cast<int>(launch.stream.team.value) + member * C.block_m();
    return at;
  }
  // A last band may have fewer tiles than a team has CTAs.
  __device__ bool Outside(const Tile& at) const {
    return (C.skinny() ? at.col0 : at.row0) >= static_cast<int>(launch.args.m);
  }

  // `visit` those who have the tile's k blocks in front of `from`, from the nearest on.
  template <class Visit>
  __device__ __forceinline__ void EachBefore(const Visit& visit) const {
    if (from == 0) return;
    int last = begin;
    for (int other = team - 1; last > tile * tile_steps(); --other) {
      const int first = Bound(other);
      if (first < last) visit(other * static_cast<int>(launch.stream.team.value) + member);
      last = first;
    }
  }

 private:
  // Where a team's part begins: at a tile's edge if that is near.
  __device__ int Bound(int of_team) const {
    const StreamK& stream = launch.stream;
    const int at = of_team * stream.step + min(of_team, stream.extra);
    const int inside = at - Divide(at, stream.tile_steps) * tile_steps();
    const int left = tile_steps() - inside;
    return inside < kLeastStreamSteps ? at - inside : left < kLeastStreamSteps ? at + left : at;
  }
  __device__ void Aim() {
    from = max(begin - tile * tile_steps(), 0);
    to = min(end - tile * tile_steps(), tile_steps());
  }
};

// Sums lie in memory as threads hold them: the same thread of another CTA takes them.
template <GemmConfig C>
__device__ __forceinline__ float4* PartialsOf(const StreamK& stream, int cta) {
  return stream.partials + static_cast<int64_t>(cta) * (C.rows * C.cols / 4) + threadIdx.x;
}
template <GemmConfig C>
__device__ __forceinline__ uint32_t* FlagOf(const StreamK& stream, int cta, int group) {
  return stream.flags + cta * C.groups + group;
}

// A math warpgroup's flags are a warp's of the producer's, which has nothing else to do: to release
// or acquire one takes a microsecond, and the math warps multiply meanwhile.
inline constexpr int kGivenBarrier = kBoxesStagedBarrier;
inline constexpr int kThereBarrier = kBoxesFreeBarrier;
inline constexpr int kFlagThreads = 128 + 32;

template <GemmConfig C>
__device__ __forceinline__ void GivePartial(const StreamK& stream, int cta, int group,
                                            const Sum<C> (&result)[C.result_regs()]) {
  float4* const to = PartialsOf<C>(stream, cta);
#pragma unroll
  for (int i = 0; i < C.result_regs() / 4; ++i) {
    to[i * C.store_threads()] = make_float4(BitsOf(result[4 * i]), BitsOf(result[4 * i + 1]),
                                            BitsOf(result[4 * i + 2]), BitsOf(result[4 * i + 3]));
  }
  ptx::NamedArrive(kGivenBarrier + group, kFlagThreads);
}

template <GemmConfig C>
__device__ __forceinline__ void TakePartial(const StreamK& stream, int cta,
                                            Sum<C> (&result)[C.result_regs()]) {
  const float4* const from = PartialsOf<C>(stream, cta);
  constexpr int kAll = C.result_regs() / 4;
  constexpr int kAtOnce = 16;
#pragma unroll
  for (int first = 0; first < kAll; first += kAtOnce) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < kAll; ++i) {
      v[i] = __ldcg(from + (first + i) * C.store_threads());
    }
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < kAll; ++i) {
      result[4 * (first + i)] += FromBits<Sum<C>>(v[i].x);
      result[4 * (first + i) + 1] += FromBits<Sum<C>>(v[i].y);
      result[4 * (first + i) + 2] += FromBits<Sum<C>>(v[i].z);
      result[4 * (first + i) + 3] += FromBits<Sum<C>>(v[i].w);
    }
  }
}

// The flags of math warpgroup `group`, in the order in which it comes to them: at most one is set,
// by the first tile, and those of the last tile are taken. Whoever takes one leaves it as it was.
template <GemmConfig C>
__device__ __forceinline__ void PassFlags(const StreamLaunch& launch, const ClusterPlace<C>& place,
                                          int cta, int group, int lane) {
  for (StreamWalk<C> walk(launch, cta); walk.valid(); walk.Next()) {
    if (walk.Outside(walk.At(place))) continue;
    if (!walk.EndsTile()) {
      ptx::NamedBarrier(kGivenBarrier + group, kFlagThreads);
      if (lane == 0) ptx::SetFlag(FlagOf<C>(launch.stream, cta, group));
    } else if (walk.from > 0) {
      if (lane == 0) {
        walk.EachBefore([&](int other) { ptx::TakeFlag(FlagOf<C>(launch.stream, other, group)); });
      }
      __syncwarp();
      ptx::NamedArrive(kThereBarrier + group, kFlagThreads);
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_STREAM_WALK_CUH_
