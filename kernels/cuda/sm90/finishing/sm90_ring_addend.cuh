// C by way of the ring: a tile's comes behind its last k blocks, in stages of its own, as 16-bit
// values in boxes of 64 columns. It is there when the products are, and memory has had all the time
// that these took.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/ldmatrix.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"

namespace gemmd::kernels::cuda {

// The producer warp's part, behind a tile's last k block. `scales`: what fills a stage beside the
// boxes (BScaleLoads); whatever it brings is not read.
template <GemmConfig C, class Scales>
__device__ __forceinline__ void LoadAddend(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const Tile& tile, const Scales& scales, int lane,
                                           RingPosition<C.stages>& at) {
  if constexpr (C.adds_by_ring()) {
    if (launch.add_stages == 0) return;
    constexpr int kBoxes = C.add_boxes(), kOfStage = C.add_boxes_of_stage();
    const int m = C.skinny() ? tile.col0 : tile.row0, n = C.skinny() ? tile.row0 : tile.col0;
#pragma unroll 1
    for (int first = 0; first < kBoxes; first += kOfStage) {
      const int end = first + kOfStage < kBoxes ? first + kOfStage : kBoxes;
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        ptx::MbarrierArriveExpectTx(smem.Full(at.stage), (end - first) * C.add_box_bytes());
        for (int box = first; box < end; ++box) {
          ptx::TensorLoad(&launch.add_map, smem.Full(at.stage),
                          smem.Rows(at.stage) + (box - first) * C.add_box_bytes(),
                          (n + box * 64) * 2, m, 0, tile.batch, ptx::kEvictNormal);
        }
      }
      scales.Load(launch, smem, lane, at.stage, 0);
      __syncwarp();
      at.Advance();
    }
  }
}

// Nothing of C comes by the ring.
struct NoRingAddend {
  static constexpr bool kHas = false;

  template <class... Any>
  __device__ __forceinline__ explicit NoRingAddend(const Any&...) {}
  __device__ __forceinline__ bool there() const { return false; }
  __device__ __forceinline__ void Await() const {}
  __device__ __forceinline__ void Release() {}
};

// A math warpgroup's part: what `math` finds behind the k blocks of its tile.
template <GemmConfig C, class Math>
struct RingAddend {
  static constexpr bool kHas = C.adds_by_ring();

  Math& math;
  const GemmLaunch& launch;
  bool of_tile = true;  // what is stored has a part of C
  uint32_t read = 0;    // what came last

  __device__ __forceinline__ RingAddend(Math& math, const GemmLaunch& launch)
      : math(math), launch(launch) {}

  __device__ __forceinline__ bool there() const { return kHas && launch.add_stages > 0 && of_tile; }

  // Until all of it is there. Behind this the ring has nothing more of the tile to wait for.
  __device__ __forceinline__ void Await() const {
    if (!there()) return;
    RingPosition<C.stages> at = math.issue;
#pragma unroll 1
    for (int i = 0; i < C.add_stages(); ++i, at.Advance()) {
      ptx::MbarrierWait(math.smem.Full(at.stage), at.parity);
    }
  }

  // Of a warpgroup that stores nothing. It waits, too: a barrier tells two rounds of the ring
  // apart, not three.
  __device__ __forceinline__ void Pass() {
    Await();
    Release();
  }

  // Of chunks from `first` on, which are C's columns or, of a skinny tile, its rows.
  template <int kCount, class Out>
  __device__ __forceinline__ void Read(const Out& out, int sub, int first,
                                       uint32_t (&words)[2 * kCount]) {
    const int lane = out.lane;
    const int group_row = C.alternates ? 0 : out.group * C.row_subs() * 64;
    const int row = group_row + sub * 64 + out.warp * 16;  // of the row side
    if constexpr (C.skinny()) {
      const uint32_t box = Box(row / 64) + lane % 8 * 128;
      const uint32_t unit = row % 64 / 8 + lane / 8 % 2;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int chunk = min(first + i, C.cols / 8 - 1);
        ptx::LdMatrix2Transposed(box + chunk * 8 * 128 + ((unit ^ lane % 8) << 4), words[2 * i],
                                 words[2 * i + 1]);
      }
    } else {
      const uint32_t in_box = (row + lane % 16) * 128;
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        const int chunk = min(first + i, C.cols / 8 - 2) + lane / 16;
        uint32_t four[4];
        ptx::LdMatrix4(Box(chunk / 8) + in_box + ((chunk % 8 ^ lane % 8) << 4), four);
#pragma unroll
        for (int j = 0; j < 4 && 2 * i + j < 2 * kCount; ++j) words[2 * i + j] = four[j];
      }
    }
    read = words[2 * kCount - 1];
  }

  // The stages are free again, and `math` stands at the next tile.
  __device__ __forceinline__ void Release() {
    if (!there()) return;
    // 0, and it depends on what was read: an arrive waits for no load on its way to a register.
    const uint32_t zero = read & (static_cast<uint32_t>(launch.add_stages) >> 16);
#pragma unroll 1
    for (int i = 0; i < C.add_stages(); ++i) {
      GiveBack<C>(math.smem, math.place, math.smem.Empty(math.release.stage) + zero, math.lane,
                  math.lane_offset, math.writer_empty);
      static_cast<RingPosition<C.stages>&>(math.release).Advance();
      static_cast<RingPosition<C.stages>&>(math.issue).Advance();
    }
  }

 private:
  __device__ __forceinline__ uint32_t Box(int box) const {
    constexpr int kOfStage = C.add_boxes_of_stage();
    int stage = math.issue.stage + box / kOfStage;
    if (stage >= C.stages) stage -= C.stages;
    return math.smem.Rows(stage) + box % kOfStage * C.add_box_bytes();
  }
};

}  // namespace gemmd::kernels::cuda
