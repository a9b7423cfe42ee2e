// A math warp gives a stage of the ring back to whoever writes into it, and a CTA that is written
// to stays until all of its own are given back.

#pragma once

#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// `empty` is the stage's barrier in this CTA, `writer_empty` stage 0's in the CTA that this lane
// tells, if it does. `lane_offset` is 0 for lane 0, which alone uses it: without it ptxas takes the
// barrier's address to the uniform datapath, and has all lanes vote on whether to compute it.
template <GemmConfig C>
__device__ __forceinline__ void GiveBack(const SmemLayout<C>& smem, const ClusterPlace<C>& place,
                                         uint32_t empty, int lane, uint32_t lane_offset,
                                         uint32_t writer_empty) {
  __syncwarp();
  if constexpr (C.multicast() == 1 && kReleasingLanes == 1) {
    if (lane == 0) ptx::MbarrierArrive(empty + lane_offset);
  } else if constexpr (C.multicast() == 1) {
    ptx::MbarrierArrive(empty);
  } else if constexpr (kReleasingLanes == 1) {
    // Mapped once: the arithmetic of mapa and of Writer would stand between a chain's products
    // and their promotion, and take the descriptors out of uniform registers.
    if (lane < ClusterPlace<C>::kWriters) {
      ptx::MbarrierArriveRemote(writer_empty + (empty - smem.Empty(0)));
    }
  } else {
    for (int i = 0; i < ClusterPlace<C>::kWriters; ++i) {
      ptx::MbarrierArriveRemote(ptx::MapToRank(empty, place.Writer(i)));
    }
  }
}

// By the producer warp, behind its last stage. A peer's arrival that finds this CTA gone kills the
// kernel, and nothing else waits for it. Nor is a copy for a peer under way any more: the peer has
// read what came.
template <GemmConfig C>
__device__ __forceinline__ void AwaitGivenBack(const SmemLayout<C>& smem,
                                               RingPosition<C.stages> at) {
  if constexpr (C.multicast() > 1) {
#pragma unroll 1
    for (int i = 0; i < C.stages; ++i, at.Advance()) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
    }
  }
}

}  // namespace gemmd::kernels::cuda
