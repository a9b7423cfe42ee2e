// The skeleton of sm90_fp8_gemm.cuh with a walk over the tiles of groups (sm90_fp8_group_walk.cuh).
// Tiles are of several kinds, by one ring, whose stages have the same bytes for all. CTAs
// take tiles as they come to be free; the producer warp draws a tile's number while the one in
// front is on its way, and tells the math warps in the tile's first stage.
//
// A tile begins at any row. What it loads behind its group's end are other rows or zeros: results
// of theirs stay in registers, since each row's products are its own.
//
// Kernels that finish (`kFinishes`) are for what NeedsFinish(), as dense ones are.

#pragma once

#include "kernels/cuda/sm90/finishing/sm90_finish.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_group_producer.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gate_finish.cuh"

namespace gemmd::kernels::cuda {

// From a tile's results to D, or through the gate.
template <GemmConfig C, bool kFinishes>
__device__ __forceinline__ void StoreTile(const GroupedLaunch& launch, const SmemLayout<C>& smem,
                                          const GroupPlace& at, const Tile& tile, int warp,
                                          int lane, float (&result)[C.result_regs()]) {
  if constexpr (C.gates) {
    const GateFinish<C> finish(launch.gated, launch.gemm.args.alpha, smem, warp, lane);
    const int block = at.n0 / C.block_n();
    if constexpr (C.skinny()) {
      finish.StoreColumns(tile, at.row_end, block, result);
    } else {
      finish.StoreRows(tile, at.row_end, block, result);
    }
  } else {
    // The store's bounds and bias are a tile's: of this copy the compiler keeps what the store
    // reads.
    GemmLaunch bounded;
    bounded.args = launch.gemm.args;
    bounded.streams_b = launch.gemm.streams_b;
    bounded.stores_by_copy = launch.gemm.stores_by_copy;
    bounded.args.m = at.row_end;
    if constexpr (kFinishes) {
      bounded.adjusts = launch.gemm.adjusts;
      bounded.args.beta = 0.0f;
      if (bounded.args.bias != nullptr) {
        bounded.args.bias =
            static_cast<const uint8_t*>(bounded.args.bias) + at.group * launch.bias_group_bytes;
      }
    }
    Epilogue<C, true> out(bounded, smem, warp, lane);
    out.tile = tile;
    if constexpr (kFinishes) {
      NoRingAddend none;
      TileBias<C, Epilogue<C, true>> bias;
      bias.Load(out);
      StoreFinished<C>(bounded, smem, out, result, none, bias);
    } else {
      StoreWhole<C>(bounded, smem, out, result);
    }
  }
  __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
}

// One tile from its first stage, at `ring`, to D.
template <GemmConfig C, bool kFinishes>
__device__ __forceinline__ void ConsumeTile(const GroupedLaunch& launch, const SmemLayout<C>& smem,
                                            const GroupPlace& at, RingPosition<C.stages>& ring,
                                            int warp, int lane) {
  const ClusterPlace<C> place = C.multicast() > 1 ? ClusterPlace<C>::Here() : ClusterPlace<C>{};
  float result[C.result_regs()];
  Math<C> math(smem, place, warp, lane, result);
  static_cast<RingPosition<C.stages>&>(math.issue) = ring;
  static_cast<RingPosition<C.stages>&>(math.release) = ring;
  const int steps = (launch.gemm.k_blocks + C.k_blocks - 1) / C.k_blocks * C.k_blocks;
  if constexpr (!C.skinny()) {
    if (at.row0 + (C.splits_cols ? 0 : warp / 4 * 64) >=
        at.row_end) {  // a warpgroup without rows lets the tile pass
#pragma unroll 1
      for (int i = 0; i < steps; ++i) {
        math.WaitFull();
        math.issue.Advance();
        math.Release();
      }
      ring = math.release;
      return;
    }
  }
  // Else the number is read anew for each release, since a rest's loop is short of registers.
  if constexpr (C.takes_rest) math.lane = __shfl_sync(0xffffffffu, lane, lane);
  math.a_scales += at.row0 % kScaleRows * 4;
  if constexpr (C.thin()) math.col_block = ThinBoxRows(at) * (kBlockK / 16);
  Tile tile = TileOf<C>(at);
  if constexpr (C.splits_cols && !C.gates) tile.col0 += warp / 4 * C.own_cols();
  math.Run(steps, tile);
  ring = math.release;
  StoreTile<C, kFinishes>(launch, smem, at, tile, warp, lane, result);
}

// A thin tile's rows of A are columns of its products: no more are multiplied than there are,
// rounded up. Each width leaves the same bits.
template <GemmConfig W, GemmConfig T, bool kFinishes>
__device__ __forceinline__ void ConsumeThinTile(const GroupedLaunch& launch,
                                                const SmemLayout<W>& smem, const GroupPlace& at,
                                                RingPosition<W.stages>& ring, int warp, int lane) {
  if constexpr (!T.gates) {
    constexpr GemmConfig kQuarter = OfColumns(T, 16), kHalf = OfColumns(T, 32);
    static_assert(SharesRing<W, kQuarter>() && SharesRing<W, kHalf>());
    const int rows = at.row_end - at.row0;
    if (rows <= kQuarter.cols) {
      ConsumeTile<kQuarter, kFinishes>(launch, SmemLayout<kQuarter>{smem.base}, at, ring, warp,
                                       lane);
      return;
    }
    if (rows <= kHalf.cols) {
      ConsumeTile<kHalf, kFinishes>(launch, SmemLayout<kHalf>{smem.base}, at, ring, warp, lane);
      return;
    }
  }
  ConsumeTile<T, kFinishes>(launch, SmemLayout<T>{smem.base}, at, ring, warp, lane);
}

template <GemmConfig W, GemmConfig T, bool kFinishes>
__device__ __forceinline__ void ConsumeGroups(const GroupedLaunch& launch,
                                              const SmemLayout<W>& smem) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  RingPosition<W.stages> ring;
  int before = kWideTile;
  while (true) {
    ptx::MbarrierWait(smem.Full(ring.stage), ring.parity);
    const GroupPlace at = TileNote<W>::template Get<kFinishes>(smem, ring.stage);
    // Each kind divides the staging area in its own way: the last tile's has been read.
    if (at.kind != before) ptx::NamedBarrier(kReadyBarrier, W.math_threads());
    before = at.kind;
    if (at.kind == kWideTile) {
      ConsumeTile<W, kFinishes>(launch, smem, at, ring, warp, lane);
    } else if (at.kind == kThinTile) {
      ConsumeThinTile<W, T, kFinishes>(launch, smem, at, ring, warp, lane);
    } else if (at.kind == kNoTile) {
      return;
    } else {
      constexpr GemmConfig H = HalfOf(W);
      ConsumeTile<H, kFinishes>(launch, SmemLayout<H>{smem.base}, at, ring, warp, lane);
    }
  }
}

// `kTable`: matrices lie apart.
template <uint64_t kWide, uint64_t kThin, bool kTable, bool kFinishes>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    Fp8Grouped(const __grid_constant__ GroupedLaunch launch) {
  constexpr GemmConfig W = Decode(kWide), T = Decode(kThin);
  static_assert(SharesRing<W, W>() && SharesRing<W, T>() && SharesRing<W, HalfOf(W)>());
  static_assert(W.moves_registers() && kFullArrivals<W> == 1 + kOtherArrivals &&
                kFullArrivals<T> == 1 + kOtherArrivals);
  extern __shared__ uint8_t raw_smem[];
  const uint32_t raw = ptx::SmemAddress(raw_smem);
  const SmemLayout<W> smem{(raw + 1023) / 1024 * 1024};
  using Walk = GroupWalk<W, MixedTiles<W, T>>;
  const Walk walk{launch, reinterpret_cast<int*>(raw_smem + (smem.base - raw) + Walk::kTable)};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = W.math_threads() / 32;
  if (warp >= kProducerWarp) {
    ptx::SetMaxRegistersDown<W.producer_registers()>();
    if (warp > kProducerWarp) return;
    MakeRing<W>(launch, smem);
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, W.math_threads() + 32);
    int ahead = 0;
    if (!kTable && launch.weights_first) {
      ptx::NamedBarrier(kTableBarrier, W.math_threads() + 32);
      ahead = LoadFirstWeights<W, T>(launch, walk, smem, lane);
      ptx::GridDependencyWait();
    } else {
      ptx::GridDependencyWait();
      ptx::NamedBarrier(kTableBarrier, W.math_threads() + 32);
    }
    // The kernel behind this one makes itself ready meanwhile. Behind the wait, so that it finds
    // all that was in front of this one.
    ptx::GridDependencyLaunch();
    ProduceGroups<W, T, kTable>(launch, walk, smem, lane, ahead);
  } else {
    ptx::SetMaxRegistersUp<W.math_registers()>();
    if (kTable || !launch.weights_first) ptx::GridDependencyWait();
    walk.Make(warp, lane);
    ptx::NamedArrive(kTableBarrier, W.math_threads() + 32);
    ptx::NamedBarrier(kReadyBarrier, W.math_threads() + 32);
    ConsumeGroups<W, T, kFinishes>(launch, smem);
  }
}

// The seam to the host: a kernel, and one for matrices that lie apart.
template <auto* kKernel, auto* kOfTables, int kSmemBytes, int kThreads, int kClusterCtas = 1>
struct GroupedKernels {
  static_assert(kSmemBytes <= kMaxSmemBytes);

  static cudaError_t Prepare() {
    for (auto* kernel : {kKernel, kOfTables}) {
      const cudaError_t code =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  static cudaError_t Launch(const GroupedLaunch& launch, int ctas, bool programmatic,
                            cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kSmemBytes;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    config.attrs = attributes;
    if constexpr (kClusterCtas > 1) {
      config.gridDim.x -= config.gridDim.x % kClusterCtas;
      cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {kClusterCtas, 1, 1};
    }
    if (programmatic) {
      cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
      overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, launch.table != nullptr ? kOfTables : kKernel, launch);
  }
};

// One kernel for both configs.
template <GemmConfig kThin, GemmConfig kWide, bool kFinishes = false>
using GroupedFamily =
    GroupedKernels<Fp8Grouped<Encode(kWide), Encode(kThin), false, kFinishes>,
                   Fp8Grouped<Encode(kWide), Encode(kThin), true, kFinishes>,
                   kWide.smem_bytes() + GroupWalk<kWide, MixedTiles<kWide, kThin>>::kBytes,
                   kWide.threads()>;

}  // namespace gemmd::kernels::cuda
