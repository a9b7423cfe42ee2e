// Two CTAs of a cluster that go through tiles together: the first draws their numbers and reads
// where groups lie, and the other learns both from it.

#pragma once

#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_group_walk.cuh"

namespace gemmd::kernels::cuda {

// Tiles' numbers on their way from a cluster's first CTA, which draws them, to the other. A number
// lies beside its turn in one word, and so is there as a whole. The first CTA is ahead by no more
// tiles than the ring has stages, with some between them that are outside, and draws two ahead.
template <GemmConfig W, class Walk>
struct TurnNotes {
  static constexpr int kSlots = 32;
  static constexpr uint32_t kAt = Walk::kTable + (Walk::kBytes + 15) / 16 * 16;
  static constexpr int kBytes = kSlots * 8;

  static __device__ __forceinline__ uint32_t At(const SmemLayout<W>& smem, int turn) {
    return smem.base + kAt + turn % kSlots * 8;
  }
  static __device__ __forceinline__ void Clear(const SmemLayout<W>& smem, int lane) {
    if (lane < kSlots) ptx::StoreShared2(At(smem, lane), make_float2(0, 0));
    ptx::FenceCluster();
  }
  static __device__ __forceinline__ void Send(const SmemLayout<W>& smem, int turn, int index) {
    ptx::StoreRemote8(ptx::MapToRank(At(smem, turn), 1),
                      static_cast<uint64_t>(turn) << 32 | static_cast<uint32_t>(index));
  }
  static __device__ __forceinline__ int Wait(const SmemLayout<W>& smem, int turn) {
    uint64_t note;
    do {
      note = ptx::LoadFromPeer8(At(smem, turn));
    } while (static_cast<int>(note >> 32) != turn);
    return static_cast<int>(note);
  }
};

// Calls `load` with each tile's number that a cluster draws, one behind the other.
template <GemmConfig W, class Walk, class Load>
__device__ __forceinline__ void DrawTiles(const GroupedLaunch& launch, const Walk& walk,
                                          const SmemLayout<W>& smem, int rank, int lane,
                                          const Load& load) {
  using Turns = TurnNotes<W, Walk>;
  const int total = walk.Total(), clusters = static_cast<int>(gridDim.x) / 2;
  int index = static_cast<int>(blockIdx.x) / 2, next = index + clusters;
  for (int turn = 0; index < total; ++turn) {
    int drawn = 0;  // the tile behind the next one; comes while this one is loaded
    if (rank == 0 && lane == 0) drawn = atomicAdd(&launch.tickets->next, 1) + 2 * clusters;
    load(index);
    if (rank == 0) {
      index = next;
      next = __shfl_sync(0xffffffffu, drawn, 0);
      if (index < total && lane == 0) Turns::Send(smem, turn + 2, next);
    } else {
      index = turn == 0 ? next : Turns::Wait(smem, turn + 1);
    }
  }
}

// With the cluster's other CTA: its barriers are there, or this one's are used no more.
__device__ __forceinline__ void Meet() {
  ptx::ClusterArriveRelaxed();
  ptx::ClusterWait();
}

// By the math warps, in place of Meet.
template <GemmConfig W, class Walk>
__device__ __forceinline__ void MakeTable(const Walk& walk, const SmemLayout<W>& smem, int warp,
                                          int lane) {
  const bool first = ptx::ClusterRank() == 0;
  if (first) walk.Make(warp, lane);
  __syncwarp();
  ptx::ClusterArrive();
  ptx::ClusterWait();
  if (!first) walk.Copy(ptx::MapToRank(smem.base + Walk::kTable, 0), warp * 32 + lane);
}

}  // namespace gemmd::kernels::cuda
