// A CTA's part of stream_k.h's line, and how sums cross between CTAs that meet in a tile.

#pragma once

#include "kernels/cuda/ptx/flag.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"
#include "kernels/cuda/sm90/stream/stream_line.h"

namespace gemmd::kernels::cuda {

// The part of a CTA: its team's, of the tiles of rows that are its own. It waits for CTAs of lower
// numbers alone, which were started before it.
template <GemmConfig C>
struct StreamWalk : StreamPart {
  const StreamLaunch& launch;
  int member;

  __device__ StreamWalk(const StreamLaunch& launch, int cta)
      : StreamPart(launch.stream, Divide(cta, launch.stream.team)),
        launch(launch),
        member(cta - team * static_cast<int>(launch.stream.team.value)) {}

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

  // `visit` the CTAs that have the tile's k blocks in front of `from`, from the nearest on.
  template <class Visit>
  __device__ __forceinline__ void EachCtaBefore(const Visit& visit) const {
    EachBefore(
        [&](int other) { visit(other * static_cast<int>(launch.stream.team.value) + member); });
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
        walk.EachCtaBefore(
            [&](int other) { ptx::TakeFlag(FlagOf<C>(launch.stream, other, group)); });
      }
      __syncwarp();
      ptx::NamedArrive(kThereBarrier + group, kFlagThreads);
    }
  }
}

}  // namespace gemmd::kernels::cuda
