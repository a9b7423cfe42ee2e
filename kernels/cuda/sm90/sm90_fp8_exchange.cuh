// How partial sums of one tile meet: those of a cluster's k parts (Exchange, StoreSum), and those
// of a CTA's two k groups (Fold).

#pragma once

#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// The i-th four of a thread's results, the two of each pair exchanged: how results travel between
// threads. Four registers that are stored together are neighbours; in this order a result lies in a
// register of the other parity than the accumulator that is added to it, and promotion has no
// register bank conflicts.
template <GemmConfig C>
__device__ __forceinline__ float4 TravelChunkOf(const Sum<C> (&result)[C.result_regs()], int i) {
  return make_float4(BitsOf(result[4 * i + 1]), BitsOf(result[4 * i]), BitsOf(result[4 * i + 3]),
                     BitsOf(result[4 * i + 2]));
}

// What one CTA of a cluster adds up and stores: chunks [begin, end) of every sub-tile, a run of
// `stride` bytes from each part.
struct Share {
  uint32_t from;  // the inbox
  int stride = 0;
  int begin = 0;
  int end = 0;
  int subs = 1;  // sub-tiles
};

// The producer warp's part: as soon as the math warps have read the inbox's stages for the last
// time, which is before the last products, the other parts may send.
template <GemmConfig C>
__device__ __forceinline__ void TellInboxFree(const KSplit& split, const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int lane) {
  const int last = split.inbox_free[place.k_part] - 1;
  if (last >= 0) ptx::MbarrierWait(smem.Empty(last % C.stages), last / C.stages & 1);
  if constexpr (C.multicast() == 1 && !kWaitsForPeersAtOnce) {
    ptx::ClusterWait();  // the others' barriers are made
  }
  if (lane < split.parts) {
    const int rank = lane * C.multicast() + place.rank % C.multicast();
    ptx::MbarrierArriveRemote(ptx::MapToRank(smem.Outbox(), rank));
  }
}

// Lane p knows the way to part p: where chunk 0 of this part's run of chunks would lie there, that
// of thread 0; how long the run is; and the barrier.
template <GemmConfig C>
struct Ways {
  uint32_t target = 0;
  uint32_t run = 0;
  uint32_t inbox = 0;

  static __device__ __forceinline__ Ways Of(const KSplit& split, const SmemLayout<C>& smem,
                                            const ClusterPlace<C>& place, int lane) {
    constexpr int kUnit = C.store_threads() * 16;  // bytes of one chunk, all warpgroups
    const int part = min(lane, split.parts - 1);
    const int rank = part * C.multicast() + place.rank % C.multicast();
    const int first = split.chunks[part];
    Ways ways;
    ways.run = (split.chunks[part + 1] - first) * kUnit;
    ways.target = ptx::MapToRank(smem.Rows(split.inbox[part]), rank) +
                  place.k_part * C.row_subs() * ways.run - first * kUnit;
    ways.inbox = ptx::MapToRank(smem.Inbox(), rank);
    return ways;
  }
};

// The cluster's k parts of one tile meet: every thread sends each CTA the chunks that it adds up,
// out of registers, where the same thread there takes them from. Called once, at the end. The
// inboxes are stages of the ring. A CTA may leave as soon as its own share is stored: what it sent
// is on its way, and nobody reads its memory.
template <GemmConfig C>
__device__ __forceinline__ Share Exchange(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                          const ClusterPlace<C>& place, const Ways<C>& ways,
                                          const Sum<C> (&result)[C.result_regs()], int thread) {
  constexpr int kUnit = C.store_threads() * 16;  // bytes of one chunk, all warpgroups
  constexpr int kChunks = Epilogue<C>::kChunks;
  const KSplit& split = launch.split;
  Share share = {.from = smem.Rows(split.inbox[place.k_part]),
                 .begin = split.chunks[place.k_part],
                 .end = split.chunks[place.k_part + 1],
                 .subs = C.row_subs()};
  share.stride = C.row_subs() * (share.end - share.begin) * kUnit;
  if (thread == 0) ptx::MbarrierArriveExpectTx(smem.Inbox(), (split.parts - 1) * share.stride);
  const int own_run = (share.end - share.begin) * kUnit;
  const uint32_t own = share.from + place.k_part * share.stride - share.begin * kUnit;

  ptx::MbarrierWait(smem.Outbox(), 0);
  // All ways of some chunks are asked for before the first is gone.
  constexpr int kAtOnce = 8;
#pragma unroll
  for (int first = 0; first < C.result_regs() / 4; first += kAtOnce) {
    uint32_t target[kAtOnce], inbox[kAtOnce];
    bool here[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < C.result_regs() / 4; ++i) {
      const int sub = (first + i) / kChunks;
      const int chunk = (first + i) % kChunks;
      const int owner = ((chunk + 1u) * split.parts - 1) / kChunks;  // whose chunks these are
      const uint32_t run = sub == 0 ? 0 : sub * __shfl_sync(0xffffffff, ways.run, owner);
      target[i] = __shfl_sync(0xffffffff, ways.target, owner) + run + thread * 16 + chunk * kUnit;
      inbox[i] = __shfl_sync(0xffffffff, ways.inbox, owner);
      here[i] = owner == place.k_part;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < C.result_regs() / 4; ++i) {
      const uint32_t local =
          own + (first + i) / kChunks * own_run + thread * 16 + (first + i) % kChunks * kUnit;
      ptx::StoreToPart4(here[i], local, target[i], TravelChunkOf<C>(result, first + i), inbox[i]);
    }
  }
  if (share.begin < share.end) ptx::MbarrierWait(smem.Inbox(), 0);
  return share;
}

// A thread's chunk of the share, the parts' added up, always in the same order, so that the sum is
// the same in every run. Up to four loads come before the first addition. `kMost`: parts at most.
template <class T, int kMost>
__device__ __forceinline__ float4 SumOfParts(uint32_t at, int stride, int parts) {
  constexpr int kAtOnce = kMost < 4 ? kMost : 4;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int first = 0; first < kMost; first += kAtOnce) {
    if (first >= parts) break;
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < parts) v[i] = ptx::LoadShared4(at + (first + i) * stride);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i == 0) {
        sum = v[0];
      } else if (first + i < parts) {
        AddBits<T>(sum.x, v[i].x);
        AddBits<T>(sum.y, v[i].y);
        AddBits<T>(sum.z, v[i].z);
        AddBits<T>(sum.w, v[i].w);
      }
    }
  }
  return make_float4(FromBits<T>(sum.y), FromBits<T>(sum.x), FromBits<T>(sum.w),
                     FromBits<T>(sum.z));
}

// The share to D, if it only has to be rounded and D's rows are whole 16-byte units: no more
// branches than chunks, since each costs as much as ten instructions here. `kLeast` and `kMost`:
// what parts there may be.
template <GemmConfig C, int kLeast, int kMost, class Out>
__device__ __forceinline__ void StoreSumWhole(const Out& out, const Share& share, int parts,
                                              int thread) {
  constexpr int kUnit = C.store_threads() * 16;
  constexpr int kAll = (Out::kChunks + kLeast - 1) / kLeast;
  constexpr int kAtOnce = kAll < Out::kStep ? kAll : Out::kStep;
  uint32_t at = share.from + thread * 16;
#pragma unroll 1
  for (int sub = 0; sub < share.subs; ++sub) {
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += kAtOnce) {
      const int count = min(kAtOnce, share.end - first);
      out.Sync();
#pragma unroll
      for (int chunk = 0; chunk < kAtOnce; ++chunk) {
        if (chunk == count) break;
        if constexpr (C.scales_results()) {
          const float4 sum = SumOfParts<Sum<C>, kMost>(at + chunk * kUnit, share.stride, parts);
          out.Stage(chunk, 0, out.scales.Apply(sub, first + chunk, sum));
        } else {
          out.Stage(chunk, 0, SumOfParts<Sum<C>, kMost>(at + chunk * kUnit, share.stride, parts));
        }
      }
      at += count * kUnit;
      out.Sync();
      out.CopyWhole(sub, first, first + count);
    }
  }
}

template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreSum(const Out& out, const Share& share, int parts,
                                         int thread) {
  constexpr int kUnit = C.store_threads() * 16;
  if (out.whole && !out.general) {
    if (parts == 2) return StoreSumWhole<C, 2, 2>(out, share, parts, thread);
    if (parts <= 4) return StoreSumWhole<C, 3, 4>(out, share, parts, thread);
    return StoreSumWhole<C, 5, kMaxClusterSize>(out, share, parts, thread);
  }
  const int step = out.general ? Out::kStepF32 : Out::kStep;
  uint32_t at = share.from + thread * 16;
#pragma unroll 1
  for (int sub = 0; sub < share.subs; ++sub) {
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += step) {
      const int last = min(first + step, share.end);
      out.Sync();
#pragma unroll 1
      for (int chunk = first; chunk < last; ++chunk, at += kUnit) {
        float4 sum = SumOfParts<Sum<C>, kMaxClusterSize>(at, share.stride, parts);
        if constexpr (C.scales_results()) sum = out.scales.Apply(sub, chunk, sum);
        out.general ? out.StageF32(chunk, first, sum) : out.Stage(chunk, first, sum);
      }
      out.Sync();
      out.general ? out.Finish(sub, first, last) : out.CopyUnits(sub, first, last);
    }
  }
}

// The second k group's results join the first's: a thread of one leaves them where the thread of
// the same place in the other finds them.
template <GemmConfig C>
struct Fold {
  static constexpr int kThreads = C.math_threads();

  static __device__ __forceinline__ void Give(uint32_t at,
                                              const Sum<C> (&result)[C.result_regs()]) {
    ptx::NamedBarrier(kFoldFreeBarrier, kThreads);
#pragma unroll
    for (int i = 0; i < C.result_regs() / 4; ++i) {
      ptx::StoreShared4(at + i * C.store_threads() * 16, TravelChunkOf<C>(result, i));
    }
    ptx::NamedArrive(kFoldFullBarrier, kThreads);
  }
  static __device__ __forceinline__ void Take(uint32_t at, Sum<C> (&result)[C.result_regs()]) {
    ptx::NamedBarrier(kFoldFullBarrier, kThreads);
#pragma unroll
    for (int i = 0; i < C.result_regs() / 4; ++i) {
      const float4 v = ptx::LoadShared4(at + i * C.store_threads() * 16);
      result[4 * i + 1] += FromBits<Sum<C>>(v.x);
      result[4 * i] += FromBits<Sum<C>>(v.y);
      result[4 * i + 3] += FromBits<Sum<C>>(v.z);
      result[4 * i + 2] += FromBits<Sum<C>>(v.w);
    }
  }
  static __device__ __forceinline__ void Free() { ptx::NamedArrive(kFoldFreeBarrier, kThreads); }
};

}  // namespace gemmd::kernels::cuda
