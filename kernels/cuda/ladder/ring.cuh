// From step 4 on: stages of tiles in shared memory, and the barriers that say who may touch them.

#pragma once

#include "kernels/cuda/ladder/tile.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"

namespace gemmd::kernels::cuda::ladder {

// Shared memory: kStages times (kATiles tiles of A and one of B), a box of D for each tile of A,
// and two barriers a stage. `full`: the tiles have landed. `empty` (step 7): they have been read.
template <int kStages, int kATiles>
struct Ring {
  static constexpr int kStageBytes = (kATiles + 1) * kTileBytes;
  static constexpr int kBarriersAt = kStages * kStageBytes + kATiles * kTileBytes;
  static constexpr int kBytes = kBarriersAt + kStages * 16 + kAlignBytes;
  static_assert(kBytes <= 232448, "more than a CTA may have");

  uint32_t base = SharedBase();

  __device__ uint32_t A(int stage, int tile = 0) const {
    return base + stage * kStageBytes + tile * kTileBytes;
  }
  __device__ uint32_t B(int stage) const { return A(stage, kATiles); }
  __device__ uint32_t D(int tile = 0) const {
    return base + kStages * kStageBytes + tile * kTileBytes;
  }
  __device__ uint32_t Full(int stage) const { return base + kBarriersAt + stage * 16; }
  __device__ uint32_t Empty(int stage) const { return Full(stage) + 8; }

  // By one thread; the others must not touch a barrier before a barrier of the CTA behind it.
  __device__ void Init(int readers) const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::MbarrierInit(Full(stage), 1);
      ptx::MbarrierInit(Empty(stage), readers);
    }
    ptx::FenceMbarrierInit();
  }
};

// A place in a ring: the stage, and the parity of its barriers' phase, which changes each time
// round.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// True in one thread of the CTA, the same each time: the one that asks the copy engine; `warp` is
// WarpIndex(). Elected and not number 0, because ptxas makes a loop over a warp's threads of what
// it does not know to be one's.
__device__ __forceinline__ bool Asks(int warp) { return warp == 0 && ptx::ElectOne(); }

// Asks for a box: rows from `row` on, bytes 128 * k to 128 * k + 127 of each.
__device__ __forceinline__ void LoadBox(const CUtensorMap& map, uint32_t full, uint32_t target,
                                        int row, int k) {
  ptx::TensorLoad(&map, full, target, 128 * k, row, 0, 0, ptx::kEvictNormal);
}
// The same into both CTAs of a pair (step 9).
__device__ __forceinline__ void LoadBoxForBoth(const CUtensorMap& map, uint32_t full,
                                               uint32_t target, int row, int k) {
  ptx::TensorLoadMulticast(&map, full, target, 128 * k, row, 0, 0, 0b11, ptx::kEvictNormal);
}

}  // namespace gemmd::kernels::cuda::ladder
