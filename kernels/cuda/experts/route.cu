// A stable counting sort of choices by expert. Up to a CTA's worth in one kernel; more in three:
// count, add up, place. Ranks come from where equal ids stand, never from the order of atomics.

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kMostExperts = 512;

struct Shared {
  uint16_t counts[kWarps][kMostExperts];  // of each warp; then of the warps in front of it
  int totals[kMostExperts];               // of the CTA
  int first[kMostExperts + 1];
  int warp_sums[kWarps];
};

__device__ __forceinline__ int CheckedId(const RouteArgs& args, int i) {
  const int token = i / args.top_k;
  const int choice = i - token * args.top_k;
  const int32_t* place = args.ids + token * args.ids_row + choice;
  const int id = *const_cast<const volatile int32_t*>(place);  // once: it may change meanwhile
  if (id >= -1 && id < args.experts) return id;
  *reinterpret_cast<int4*>(args.fault) =
      make_int4(static_cast<int>(DataFaultKind::kExpert), i, id, args.experts - 1);
  return -1;
}

// How many threads in front of this one, in the CTA, have its id; totals of all ids.
__device__ __forceinline__ int RankInCta(Shared& shared, int experts, int id) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  for (int e = lane; e < experts; e += 32) shared.counts[warp][e] = 0;
  __syncwarp();
  const unsigned same = __match_any_sync(0xffffffffu, id);
  const int rank = __popc(same & ((1u << lane) - 1));
  if (id >= 0 && rank == 0) shared.counts[warp][id] = static_cast<uint16_t>(__popc(same));
  __syncthreads();  // every warp has counted
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    int sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      const int count = shared.counts[w][e];
      shared.counts[w][e] = static_cast<uint16_t>(sum);
      sum += count;
    }
    shared.totals[e] = sum;
  }
  __syncthreads();  // sums are there
  return id < 0 ? 0 : shared.counts[warp][id] + rank;
}

// first[e] = the sum of `value` over the threads in front of thread e; first[experts] of all.
__device__ __forceinline__ void AddUp(Shared& shared, int experts, int value) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();  // every warp's sum is there
  int before = 0;
  for (int w = 0; w < warp; ++w) before += shared.warp_sums[w];
  if (threadIdx.x < experts) shared.first[threadIdx.x + 1] = before + sum;
  if (threadIdx.x == 0) shared.first[0] = 0;
  __syncthreads();  // all of `first` is there
}

__device__ __forceinline__ void Place(const RouteArgs& args, int i, int id, int place, int end) {
  const int token = i / args.top_k;
  const int choice = i - token * args.top_k;
  args.positions[token * args.positions_row + choice] = id < 0 ? -1 : place;
  if (id >= 0) args.rows[place] = token;
  if (i >= end) args.rows[i] = -1;
}

__global__ void __launch_bounds__(kThreads) RouteAtOnce(const __grid_constant__ RouteArgs args) {
  __shared__ Shared shared;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int choices = args.tokens * args.top_k;
  const int i = threadIdx.x;
  const int id = i < choices ? CheckedId(args, i) : -1;
  const int rank = RankInCta(shared, args.experts, id);
  AddUp(shared, args.experts, i < args.experts ? shared.totals[i] : 0);
  for (int e = i; e <= args.experts; e += kThreads) args.offsets[e] = shared.first[e];
  if (i < choices)
    Place(args, i, id, id < 0 ? -1 : shared.first[id] + rank, shared.first[args.experts]);
}

// An expert's counts in some CTAs, whose loads are under way together; 0 behind the last.
constexpr int kCountsAtOnce = 16;
struct SomeCounts {
  int counts[kCountsAtOnce];

  __device__ __forceinline__ SomeCounts(const int32_t* from, int experts, int cta, int ctas) {
#pragma unroll
    for (int i = 0; i < kCountsAtOnce; ++i) {
      counts[i] = cta + i < ctas ? from[static_cast<int64_t>(cta + i) * experts] : 0;
    }
  }
};

// Scratch: the checked ids, then [CTAs, experts] counts, which become what is in front of each.
__global__ void __launch_bounds__(kThreads) CountChoices(const __grid_constant__ RouteArgs args) {
  __shared__ Shared shared;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int choices = args.tokens * args.top_k;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int id = i < choices ? CheckedId(args, i) : -1;
  if (i < choices) args.counts[i] = id;
  RankInCta(shared, args.experts, id);
  int32_t* const counts = args.counts + choices + static_cast<int64_t>(blockIdx.x) * args.experts;
  for (int e = threadIdx.x; e < args.experts; e += kThreads) counts[e] = shared.totals[e];
}

__global__ void __launch_bounds__(kThreads)
    AddUpChoices(const __grid_constant__ RouteArgs args, int ctas) {
  __shared__ Shared shared;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int e = threadIdx.x;
  int32_t* const counts = args.counts + args.tokens * args.top_k + e;
  const int those = e < args.experts ? ctas : 0;
  int total = 0;
  for (int cta = 0; cta < those; cta += kCountsAtOnce) {
    const SomeCounts some(counts, args.experts, cta, ctas);
#pragma unroll
    for (int i = 0; i < kCountsAtOnce; ++i) total += some.counts[i];
  }
  AddUp(shared, args.experts, total);
  total = e < args.experts ? shared.first[e] : 0;
  for (int cta = 0; cta < those; cta += kCountsAtOnce) {
    const SomeCounts some(counts, args.experts, cta, ctas);
#pragma unroll
    for (int i = 0; i < kCountsAtOnce; ++i) {
      if (cta + i < ctas) counts[static_cast<int64_t>(cta + i) * args.experts] = total;
      total += some.counts[i];
    }
  }
  for (int i = e; i <= args.experts; i += kThreads) args.offsets[i] = shared.first[i];
  // For PlaceChoices, behind the counts: another program may write to the offsets meanwhile.
  if (e == 0)
    args.counts[args.tokens * args.top_k + ctas * args.experts] = shared.first[args.experts];
}

__global__ void __launch_bounds__(kThreads)
    PlaceChoices(const __grid_constant__ RouteArgs args, int ctas) {
  __shared__ Shared shared;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int choices = args.tokens * args.top_k;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int id = i < choices ? args.counts[i] : -1;
  const int rank = RankInCta(shared, args.experts, id);
  const int32_t* const before =
      args.counts + choices + static_cast<int64_t>(blockIdx.x) * args.experts;
  const int place = id < 0 ? -1 : before[id] + rank;
  if (i < choices) Place(args, i, id, place, args.counts[choices + ctas * args.experts]);
}

}  // namespace

int64_t RouteScratchBytes(int64_t choices, int64_t experts) {
  if (choices <= kThreads) return 0;
  return 4 * (choices + CeilDiv(choices, kThreads) * experts + 1);
}

cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream) {
  const int64_t choices = int64_t{args.tokens} * args.top_k;
  if (args.experts < 1 || args.experts > kMostExperts || args.fault == nullptr) {
    return cudaErrorInvalidValue;
  }
  if (choices <= kThreads) {
    return LaunchKernel(RouteAtOnce, dim3(1), kThreads, args.programmatic, stream, args);
  }
  const int ctas = static_cast<int>(CeilDiv(choices, kThreads));
  cudaError_t error =
      LaunchKernel(CountChoices, GridOf(ctas), kThreads, args.programmatic, stream, args);
  if (error == cudaSuccess) {
    error = LaunchKernel(AddUpChoices, dim3(1), kThreads, true, stream, args, ctas);
  }
  if (error != cudaSuccess) return error;
  return LaunchKernel(PlaceChoices, GridOf(ctas), kThreads, true, stream, args, ctas);
}

}  // namespace gemmd::kernels::cuda
