#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize_chunk.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLanesPerBlock = 8;  // of 128 elements
constexpr int kElements = kQuantBlock / kLanesPerBlock;
constexpr int kBlocksPerCta = kThreads / kLanesPerBlock;  // at most
constexpr int kMostExperts = 512;
constexpr int kExpertsAThread = kMostExperts / kThreads;
constexpr int kCountedAtOnce = 8;  // choices of the token, as registers go
constexpr int kIdsAtOnce = 4;      // whose loads a thread has under way together

struct Shared {
  int ids[kMostDispatchChoices];     // of the CTA's token
  int places[kMostDispatchChoices];  // the rows that its choices go to; -1: none
  int counts[kMostExperts];
  int warp_sums[kWarps];
};

// One load for each number: it may change meanwhile.
__device__ __forceinline__ int LoadId(const RouteArgs& args, int i) {
  const int token = i / args.top_k;
  const int32_t* const place = args.ids + token * args.ids_row + (i - token * args.top_k);
  return *const_cast<const volatile int32_t*>(place);
}
// -1 in place of a number that is no expert.
__device__ __forceinline__ int CheckedId(const RouteArgs& args, int i, int id, bool tells) {
  if (id >= -1 && id < args.experts) return id;
  if (tells) {
    *reinterpret_cast<int4*>(args.fault) =
        make_int4(static_cast<int>(DataFaultKind::kExpert), i, id, args.experts - 1);
  }
  return -1;
}

// Of choices i, i + kThreads and so on, as they lie in memory; -1 behind the last. All loads are
// under way together.
struct SomeIds {
  int ids[kIdsAtOnce];

  __device__ __forceinline__ SomeIds(const RouteArgs& args, int i, int choices) {
#pragma unroll
    for (int l = 0; l < kIdsAtOnce; ++l) {
      ids[l] = -1;
      if (i + l * kThreads < choices) ids[l] = LoadId(args, i + l * kThreads);
    }
  }
};

// A stable sort by expert puts a choice behind all of smaller experts, and of its own behind those
// in front of it.
__device__ __forceinline__ void CountPlaces(const RouteArgs& args, int token, Shared& shared) {
  const int choices = args.tokens * args.top_k;
  const int first = token * args.top_k;
  const int thread = static_cast<int>(threadIdx.x);
  const SomeIds nearest(args, thread, choices);
  if (thread < args.top_k) {
    shared.ids[thread] = CheckedId(args, first + thread, LoadId(args, first + thread), false);
    shared.places[thread] = 0;
  }
  __syncthreads();  // the token's ids are there
  for (int j0 = 0; j0 < args.top_k; j0 += kCountedAtOnce) {
    int mine[kCountedAtOnce], in_front[kCountedAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kCountedAtOnce; ++j) {
      mine[j] = j0 + j < args.top_k ? shared.ids[j0 + j] : -1;
    }
    SomeIds some = nearest;
    int i0 = thread;
    while (true) {
#pragma unroll
      for (int l = 0; l < kIdsAtOnce; ++l) {
        const int i = i0 + l * kThreads, id = CheckedId(args, i, some.ids[l], false);
        // Of this token the choice itself is not in front of itself, whatever is read here.
#pragma unroll
        for (int j = 0; j < kCountedAtOnce; ++j) {
          const int at = first + j0 + j;
          in_front[j] += id >= 0 && i != at && (id < mine[j] || (id == mine[j] && i < at));
        }
      }
      i0 += kIdsAtOnce * kThreads;
      if (i0 >= choices) break;
      some = SomeIds(args, i0, choices);
    }
#pragma unroll
    for (int j = 0; j < kCountedAtOnce; ++j) {
      const int sum = __reduce_add_sync(0xffffffffu, in_front[j]);
      if (thread % 32 == 0 && j0 + j < args.top_k) atomicAdd(&shared.places[j0 + j], sum);
    }
  }
  __syncthreads();  // all have counted
  if (thread < args.top_k && shared.ids[thread] < 0) shared.places[thread] = -1;
  __syncthreads();  // the token's places are there
}

__device__ __forceinline__ void LoadPlaces(const DispatchArgs& args, int token, Shared& shared) {
  if (threadIdx.x < args.route.top_k) {
    const int32_t* const from = args.route.positions + token * args.route.positions_row;
    int place = *const_cast<const volatile int32_t*>(from + threadIdx.x);
    if (place < -1 || place >= args.quantize.rows) {  // somebody wrote behind the route
      *reinterpret_cast<int4*>(args.quantize.fault) =
          make_int4(static_cast<int>(DataFaultKind::kRow),
                    token * args.route.top_k + static_cast<int>(threadIdx.x), place,
                    static_cast<int>(args.quantize.rows) - 1);
      place = -1;
    }
    shared.places[threadIdx.x] = place;
  }
  __syncthreads();  // the token's places are there
}

// What is nobody's token: where each expert's rows begin, and the rows behind the last.
__device__ void WriteOffsets(const RouteArgs& args, Shared& shared) {
  const int choices = args.tokens * args.top_k;
  for (int e = threadIdx.x; e < kMostExperts; e += kThreads) shared.counts[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < choices; i += kIdsAtOnce * kThreads) {
    const SomeIds some(args, i, choices);
#pragma unroll
    for (int l = 0; l < kIdsAtOnce; ++l) {
      const int id = CheckedId(args, i + l * kThreads, some.ids[l], true);
      if (id >= 0) atomicAdd(&shared.counts[id], 1);
    }
  }
  __syncthreads();  // all have counted
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int first = threadIdx.x * kExpertsAThread;
  int mine = 0;
#pragma unroll
  for (int i = 0; i < kExpertsAThread; ++i) mine += shared.counts[first + i];
  int sum = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();  // every warp's sum is there
  int before = sum - mine, total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += shared.warp_sums[w];
    total += shared.warp_sums[w];
  }
#pragma unroll
  for (int i = 0; i < kExpertsAThread; ++i) {
    if (first + i <= args.experts) args.offsets[first + i] = before;
    before += shared.counts[first + i];
  }
  if (args.experts == kMostExperts && threadIdx.x == 0) args.offsets[kMostExperts] = total;
  for (int i = total + static_cast<int>(threadIdx.x); i < choices; i += kThreads) args.rows[i] = -1;
}

// A thread has 16 elements of a token, eight of them a block.
template <ElementType kType>
__device__ __forceinline__ float LargestOf(
    const Chunk<kType> (&chunks)[kElements / Chunk<kType>::kElements]) {
  constexpr int kLoads = kElements / Chunk<kType>::kElements;
  if constexpr (!Chunk<kType>::kNarrow) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) amax = chunks[i].template AddTo<false>(amax);
    return MaxOverLanes<kLanesPerBlock>(amax);
  } else {
    uint32_t pair = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) pair = chunks[i].AddPairsTo(pair);
    pair = MaxNaNx2<kType>(pair, pair >> 16 | pair << 16);
#pragma unroll
    for (int step = kLanesPerBlock / 2; step > 0; step /= 2) {
      pair = MaxNaNx2<kType>(pair, __shfl_xor_sync(0xffffffffu, pair, step));
    }
    return ToF32(kType, pair & 0xffffu);
  }
}

// CTA (token, part): a part of the token's blocks of 128. With `kRoutes` the one behind the last
// token writes the offsets, and CTAs have kThreads.
template <ElementType kType, bool kRoutes>
__global__ void __launch_bounds__(kThreads)
    DispatchTokens(const __grid_constant__ DispatchArgs args) {
  using C = Chunk<kType>;
  constexpr int kLoads = kElements / C::kElements;
  __shared__ Shared shared;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const QuantizeArgs& to = args.quantize;
  if (kRoutes && static_cast<int>(blockIdx.x) == args.route.tokens) {
    if (blockIdx.y == 0) WriteOffsets(args.route, shared);
    return;
  }
  const int token = static_cast<int>(blockIdx.x);
  const int part = threadIdx.x % kLanesPerBlock;
  const int64_t block =
      static_cast<int64_t>(blockIdx.y * blockDim.x + threadIdx.x) / kLanesPerBlock;
  const int64_t k = block * kQuantBlock + part * kElements;
  C chunks[kLoads];  // on their way while the places are found
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    chunks[i] = LoadChunk<kType>(to.src, token * to.src_row + k + i * C::kElements, k < to.k);
  }
  if constexpr (kRoutes) {
    CountPlaces(args.route, token, shared);
    if (blockIdx.y == 0 && threadIdx.x < args.route.top_k) {
      const int place = shared.places[threadIdx.x];
      args.route.positions[token * args.route.positions_row + threadIdx.x] = place;
      if (place >= 0) args.route.rows[place] = token;
    }
  } else {
    LoadPlaces(args, token, shared);
  }
  const float scale = ScaleOf<false>(LargestOf<kType>(chunks));
  if (block * kQuantBlock >= to.k) return;
  const ScaleDivisor divisor = MakeScaleDivisor(scale);
  uint32_t codes[kElements / 4];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    uint32_t some[C::kCodeWords];
    chunks[i].template Encode<false>(divisor, some);
#pragma unroll
    for (int j = 0; j < C::kCodeWords; ++j) codes[i * C::kCodeWords + j] = some[j];
  }
  const uint4 whole = make_uint4(codes[0], codes[1], codes[2], codes[3]);
  for (int j = 0; j < args.route.top_k; ++j) {
    const int64_t place = shared.places[j];
    if (place < 0) continue;
    uint8_t* const row = static_cast<uint8_t*>(to.dst) + place * to.dst_row;
    float* const row_scale = to.scales + place * to.scales_row + block * to.scales_k;
    if constexpr (kRoutes) {
      if (k < to.k) *reinterpret_cast<uint4*>(row + k) = whole;
      if (j % kLanesPerBlock == part) *row_scale = scale;
    } else {
      // Codes that pass through L2 would push out scales before their neighbours have come, rows
      // of other tokens: memory would be read and written for each by itself.
      if (k < to.k) ptx::StoreGlobal4(row + k, whole, ptx::kEvictFirst);
      if (j % kLanesPerBlock == part) ptx::StoreGlobal(row_scale, scale, ptx::kEvictLast);
    }
  }
}

template <ElementType kType>
cudaError_t LaunchOf(const DispatchArgs& args, cudaStream_t stream) {
  const auto kernel = args.routes ? DispatchTokens<kType, true> : DispatchTokens<kType, false>;
  const dim3 grid(static_cast<unsigned>(args.route.tokens + (args.routes ? 1 : 0)),
                  static_cast<unsigned>(CeilDiv(args.quantize.k, kBlocksPerCta * kQuantBlock)));
  // Without routing the parts are alike.
  const int64_t blocks = CeilDiv(CeilDiv(args.quantize.k, kQuantBlock), grid.y);
  const int64_t warps = CeilDiv(blocks * kLanesPerBlock, 32);
  const int threads = args.routes ? kThreads : static_cast<int>(warps * 32);
  return LaunchKernel(kernel, grid, threads, args.quantize.programmatic, stream, args);
}

}  // namespace

bool Dispatches(const DispatchArgs& args) {
  const RouteArgs& route = args.route;
  const QuantizeArgs& to = args.quantize;
  const auto aligned = [](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % 16 == 0;
  };
  const int64_t step = 16 / ElementBytes(to.src_type);
  return route.tokens > 0 && route.top_k > 0 && route.top_k <= kMostDispatchChoices &&
         route.experts > 0 && route.experts <= kMostExperts && to.from == route.rows &&
         to.block == QuantizeBlock::k1x128 && to.dst_type == ElementType::kE4M3 && to.batch == 1 &&
         to.src_rows >= route.tokens && to.rows == int64_t{route.tokens} * route.top_k &&
         to.src_k == 1 && to.dst_k == 1 && to.k > 0 && to.k % kElements == 0 &&
         to.k <= kMaxGridYZ * kBlocksPerCta * kQuantBlock && to.src_row % step == 0 &&
         to.dst_row % kElements == 0 && aligned(to.src) && aligned(to.dst);
}

cudaError_t LaunchDispatch(const DispatchArgs& args, cudaStream_t stream) {
  const int64_t choices = int64_t{args.route.tokens} * args.route.top_k;
  if (!Dispatches(args) || (args.routes && choices > kMostRoutedChoices) ||
      args.route.fault == nullptr || args.quantize.fault == nullptr) {
    return cudaErrorInvalidValue;
  }
  switch (args.quantize.src_type) {
    case ElementType::kF32:
      return LaunchOf<ElementType::kF32>(args, stream);
    case ElementType::kBF16:
      return LaunchOf<ElementType::kBF16>(args, stream);
    case ElementType::kF16:
      return LaunchOf<ElementType::kF16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gemmd::kernels::cuda
