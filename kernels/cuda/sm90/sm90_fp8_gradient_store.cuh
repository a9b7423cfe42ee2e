// How a gradient's results leave: math warps round a sub-tile of 64 rows into boxes, and a warp
// behind the producer's has the copy engine take them to D while the next tile multiplies.
//
// Where there is a C that the copy engine can read, that warp has it fetched into the same boxes
// first, during the products. A math thread then finds its elements where its results will lie.

#pragma once

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/reduce.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_gradient_walk.cuh"

namespace gemmd::kernels::cuda {

// Named barriers of a warpgroup and its store warp, beside those of sm90_fp8_tile.cuh.
inline constexpr int kSlotStagedBarrier = 7;  // + 2 * group + slot: results are in the boxes
inline constexpr int kSlotsFreeBarrier = 11;  // + group: all slots' boxes may be overwritten

// Where a warpgroup stages a sub-tile: boxes of 64 rows of 128 bytes, which are 32 columns of FP32
// or 64 of 16 bits, swizzled. Of 16 bits there is room for two sub-tiles, which take turns.
template <GemmConfig C>
struct GradientBoxes {
  static constexpr int kBytes = 64 * 128;
  static constexpr int kThreads = 128 + 32;  // a warpgroup and its store warp
  // Behind the ring's barriers, one for each slot.
  static constexpr int kBarriers = C.smem_bytes() - 1024;
  static constexpr int kSmemBytes = C.smem_bytes() + C.groups * 2 * 8;

  static __device__ __forceinline__ int Slots(OutType out) { return out == OutType::kF32 ? 1 : 2; }
  static __device__ __forceinline__ uint32_t Of(const SmemLayout<C>& smem, int group, int slot) {
    return smem.base + SmemLayout<C>::kStore + group * 64 * C.cols * 4 + slot * 64 * C.cols * 2;
  }
  // Completes when C is there.
  static __device__ __forceinline__ uint32_t Full(const SmemLayout<C>& smem, int group, int slot) {
    return smem.base + kBarriers + (group * 2 + slot) * 8;
  }
};

// A store warp's way through the sub-tiles of its CTA's tiles.
template <GemmConfig C>
struct GradientStep {
  int index;   // of the tile, below 0 behind the last
  int number;  // of the CTA's tiles
  int sub = 0;
  int slot = 0;

  __device__ __forceinline__ void Advance(const GradientWalk& walk, int slots) {
    if (++sub == C.row_subs()) {
      sub = 0;
      index = walk.At(++number);
    }
    if (++slot == slots) slot = 0;
  }
};

// Warp `group` of those behind the producer warp.
template <GemmConfig C>
struct GradientStore {
  using Boxes = GradientBoxes<C>;

  const GradientLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int group;

  // Calls `copy` with each box of the step's sub-tile and where in D it lies.
  template <class Copy>
  __device__ __forceinline__ void ForEachBox(const GradientStep<C>& step, Copy copy) const {
    const Tile tile = TileAt<C>(launch.tiles, step.index, place);
    const int row = tile.row0 + (group * C.row_subs() + step.sub) * 64;
    const int columns = launch.out == OutType::kF32 ? 32 : 64;
    uint32_t box = Boxes::Of(smem, group, step.slot);
#pragma unroll 1
    for (int col = 0; col < C.cols; col += columns) {
      copy(box, tile.col0 + col, row, tile.batch);
      box += Boxes::kBytes;
    }
  }
  __device__ __forceinline__ void Fetch(const GradientStep<C>& step) const {
    if (step.index < 0) return;
    if (ptx::ElectOne()) {
      const uint32_t full = Boxes::Full(smem, group, step.slot);
      ptx::MbarrierArriveExpectTx(full, 64 * C.cols * (launch.out == OutType::kF32 ? 4 : 2));
      ForEachBox(step, [&](uint32_t box, int col, int row, int batch) {
        ptx::TensorLoad(&launch.c_map, full, box, col, row, 0, batch, ptx::kEvictNormal);
      });
    }
    __syncwarp();
  }
  __device__ __forceinline__ void Store(const GradientStep<C>& step) const {
    ptx::NamedBarrier(kSlotStagedBarrier + 2 * group + step.slot, Boxes::kThreads);
    if (ptx::ElectOne()) {
      ForEachBox(step, [&](uint32_t box, int col, int row, int batch) {
        if (launch.adds) {
          ptx::TensorAdd(&launch.store_map, box, col, row, 0, batch);
        } else {
          ptx::TensorStore(&launch.store_map, box, col, row, 0, batch);
        }
      });
      ptx::TensorStoreCommit();
    }
    __syncwarp();
  }

  __device__ __forceinline__ void Run(const GradientWalk& walk) const {
    const int slots = Boxes::Slots(launch.out);
    GradientStep<C> step = {.index = walk.At(0), .number = 0};
    while (step.index >= 0) {
      if (step.slot == 0) {
        ptx::TensorStoreWaitRead();
        ptx::NamedArrive(kSlotsFreeBarrier + group, Boxes::kThreads);
      }
      Store(step);
      step.Advance(walk, slots);
    }
    ptx::TensorStoreWait();
  }
  // C of the next sub-tile is fetched before this one is stored, if they have boxes of their own.
  __device__ __forceinline__ void RunWithC(const GradientWalk& walk) const {
    const int slots = Boxes::Slots(launch.out);
    GradientStep<C> step = {.index = walk.At(0), .number = 0};
    Fetch(step);
    while (step.index >= 0) {
      GradientStep<C> next = step;
      next.Advance(walk, slots);
      if (slots == 1) Store(step);
      ptx::TensorStoreWaitRead();
      Fetch(next);
      if (slots == 2) Store(step);
      step = next;
    }
    ptx::TensorStoreWait();
  }
};

// A math thread's share of a tile, rounded into boxes.
template <GemmConfig C>
struct GradientStage {
  static constexpr int kChunks = C.cols / 8;
  using Boxes = GradientBoxes<C>;
  // What happens to results besides their rounding: nothing; alpha, and C element by element; or
  // alpha and the C in the boxes.
  enum Finish { kPlain, kScaled, kInBoxes };

  const GradientLaunch& launch;
  const SmemLayout<C>& smem;
  int group;
  int warp;  // of the warpgroup
  int lane;
  int slot = 0;
  uint32_t parity = 0;  // of the slots' barriers
  uint32_t boxes = 0;

  __device__ __forceinline__ float4 Combined(float4 v, float4 c) const {
    return make_float4(
        v.x * launch.alpha + launch.beta * c.x, v.y * launch.alpha + launch.beta * c.y,
        v.z * launch.alpha + launch.beta * c.z, v.w * launch.alpha + launch.beta * c.w);
  }
  // C's elements as a chunk's results lie, where the copy engine cannot read them.
  __device__ __forceinline__ float4 Scaled(const Tile& tile, int sub, int chunk, float4 v) const {
    float4 c = make_float4(0, 0, 0, 0);
    if (launch.beta == 0.0f) return Combined(v, c);
    const int row = tile.row0 + (group * C.row_subs() + sub) * 64 + warp * 16 + lane / 4;
    const int col = tile.col0 + chunk * 8 + lane % 4 * 2;
    const int64_t at = tile.batch * launch.c_batch + row * launch.ldc + col;
    const bool left = col < launch.n, right = col + 1 < launch.n;
    if (row < launch.m) {
      if (left) c.x = LoadAs(launch.c, at, launch.out);
      if (right) c.y = LoadAs(launch.c, at + 1, launch.out);
    }
    if (row + 8 < launch.m) {
      const int64_t below = at + 8 * launch.ldc;
      if (left) c.z = LoadAs(launch.c, below, launch.out);
      if (right) c.w = LoadAs(launch.c, below + 1, launch.out);
    }
    return Combined(v, c);
  }

  static __device__ __forceinline__ float4 Results(const float* result, int chunk) {
    const float* const r = result + chunk * 4;
    return make_float4(r[0], r[1], r[2], r[3]);
  }
  // Neighbours of a row are 8 bytes of FP32: number j of the row's 16-byte units lies at
  // j ^ row % 8.
  template <Finish kFinish>
  __device__ __forceinline__ void PutF32(const Tile& tile, const float* result, int sub,
                                         int chunk) const {
    float4 v = Results(result, chunk);
    const uint32_t row = boxes + (warp * 16 + lane / 4) * 128;
    const uint32_t unit = (chunk % 4 * 2 + lane % 4 / 2) ^ (lane / 4);
    const uint32_t at = row + chunk / 4 * Boxes::kBytes + (unit << 4) + lane % 2 * 8;
    if constexpr (kFinish == kScaled) v = Scaled(tile, sub, chunk, v);
    if constexpr (kFinish == kInBoxes) {
      const float2 above = ptx::LoadShared2(at), below = ptx::LoadShared2(at + 8 * 128);
      v = Combined(v, make_float4(above.x, above.y, below.x, below.y));
    }
    ptx::StoreShared2(at, make_float2(v.x, v.y));
    ptx::StoreShared2(at + 8 * 128, make_float2(v.z, v.w));
  }
  // Lane l gives row l % 16 of the warp's, of this chunk or, from lane 16 on, of the next.
  template <Finish kFinish>
  __device__ __forceinline__ void Put16(const Tile& tile, const float* result, int sub,
                                        int chunk) const {
    float4 a = Results(result, chunk), b = Results(result, chunk + 1);
    const uint32_t row = boxes + (warp * 16 + lane % 16) * 128;
    const uint32_t unit = (chunk % 8 + lane / 16) ^ (lane % 8);
    const uint32_t at = row + chunk / 8 * Boxes::kBytes + (unit << 4);
    if constexpr (kFinish == kScaled) {
      a = Scaled(tile, sub, chunk, a);
      b = Scaled(tile, sub, chunk + 1, b);
    }
    if constexpr (kFinish == kInBoxes) {
      uint32_t c[4];
      ptx::LdMatrix4(at, c);
      a = Combined(a, Unpack4(c[0], c[1]));
      b = Combined(b, Unpack4(c[2], c[3]));
    }
    ptx::StMatrix4(at, Pack2(a.x, a.y, launch.out), Pack2(a.z, a.w, launch.out),
                   Pack2(b.x, b.y, launch.out), Pack2(b.z, b.w, launch.out));
  }
  __device__ __forceinline__ float4 Unpack4(uint32_t above, uint32_t below) const {
    const float2 x = Unpack2(above, launch.out), y = Unpack2(below, launch.out);
    return make_float4(x.x, x.y, y.x, y.y);
  }

  template <Finish kFinish>
  __device__ __forceinline__ void Sub(const Tile& tile, const float* result, int sub) const {
    if (launch.out == OutType::kF32) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) PutF32<kFinish>(tile, result, sub, chunk);
    } else {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += 2) Put16<kFinish>(tile, result, sub, chunk);
    }
  }

  __device__ __forceinline__ void Put(const Tile& tile, const float (&result)[C.result_regs()]) {
    const bool plain = launch.alpha == 1.0f && launch.beta == 0.0f;
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
      const float* const of_sub = result + sub * kChunks * 4;
      boxes = Boxes::Of(smem, group, slot);
      if (launch.c_in_boxes) {
        ptx::MbarrierWait(Boxes::Full(smem, group, slot), parity);
        Sub<kInBoxes>(tile, of_sub, sub);
      } else {
        if (slot == 0) ptx::NamedBarrier(kSlotsFreeBarrier + group, Boxes::kThreads);
        if (plain) {
          Sub<kPlain>(tile, of_sub, sub);
        } else {
          Sub<kScaled>(tile, of_sub, sub);
        }
      }
      ptx::FenceProxyAsync();
      ptx::NamedArrive(kSlotStagedBarrier + 2 * group + slot, Boxes::kThreads);
      if (++slot == Boxes::Slots(launch.out)) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
};

template <GemmConfig C>
__device__ __forceinline__ void StoreGradient(const GradientLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int cluster,
                                              int group) {
  const GradientStore<C> store = {launch, smem, place, group};
  const GradientWalk walk = {launch, cluster, static_cast<int>(threadIdx.x % 32)};
  if (launch.c_in_boxes) {
    store.RunWithC(walk);
  } else {
    store.Run(walk);
  }
}

}  // namespace gemmd::kernels::cuda
