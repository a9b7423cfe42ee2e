// A tile of a group, as producer and math warps both know it: its kind, where it lies, and the note
// in its first stage by which the one tells the others.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_group_walk.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// A's scales begin at a row that is a multiple of it.
constexpr int kScaleRows = 4;
constexpr int kNoTile = -1;                       // in place of a tile's kind: there is none left
constexpr int kWholeBox = kWideRows / kRowsABox;  // boxes of A's rows that come as one
constexpr int kOtherArrivals = 2;                 // at a stage, beside the loads'

constexpr GemmConfig HalfOf(GemmConfig wide) {
  wide.rows = kHalfRows;
  wide.splits_cols = true;
  return wide;
}
constexpr GemmConfig OfColumns(GemmConfig thin, int cols) {
  thin.cols = cols;
  return thin;
}
// Whose boxes of B a tile's are.
template <GemmConfig C>
inline constexpr int kBoxesOf = C.skinny() || (C.gates && C.splits_cols) ? kThinTile : kWideTile;

template <GemmConfig W, GemmConfig C>
constexpr bool SharesRing() {
  static_assert(Check<C>());
  static_assert(C.shares_ring && C.stages == W.stages && C.math_threads() == W.math_threads() &&
                    C.used_bytes() <= C.stage_bytes() && C.store_bytes() == W.store_bytes(),
                "all kinds go through one ring");
  static_assert(C.multicast() == 1 && C.k_groups == 1 && !C.stores_tile,
                "a tile is one CTA's, and its last rows may be others'");
  return true;
}

template <GemmConfig C>
__device__ __forceinline__ Tile TileOf(const GroupPlace& at) {
  if constexpr (C.skinny()) return {at.n0, at.row0, at.item};
  return {at.row0, at.n0, at.item};
}

// Rows that a box has of a thin tile's A.
__device__ __forceinline__ int ThinBoxRows(const GroupPlace& at) {
  return min((at.row_end - at.row0 + kRowsABox - 1) / kRowsABox * kRowsABox, kThinRows);
}

// What the math warps are told of a tile lies in its first stage, behind the scales.
template <GemmConfig C>
struct TileNote {
  static constexpr int kAt = C.scale_bytes() - 32;
  static_assert(C.b_scale_offset() + kBScales<C> * 4 <= kAt);

  static __device__ __forceinline__ void Put(const SmemLayout<C>& smem, int stage,
                                             const GroupPlace& at) {
    const uint32_t note = smem.AScales(stage) + kAt;
    ptx::StoreShared4(note, make_float4(__int_as_float(at.kind), __int_as_float(at.item),
                                        __int_as_float(at.row0), __int_as_float(at.row_end)));
    ptx::StoreShared2(note + 16, make_float2(__int_as_float(at.n0),
                                             __int_as_float(C.takes_rest ? at.rest : at.group)));
  }
  // `kGroup`: the group's number, too, of configs without a rest.
  template <bool kGroup = false>
  static __device__ __forceinline__ GroupPlace Get(const SmemLayout<C>& smem, int stage) {
    const uint32_t note = smem.AScales(stage) + kAt;
    const float4 v = ptx::LoadShared4(note);
    const auto same = [](float x) { return __shfl_sync(0xffffffffu, __float_as_int(x), 0); };
    GroupPlace at = {same(v.x), same(v.y), same(v.z), same(v.w), same(ptx::LoadShared(note + 16)),
                     0};
    if constexpr (C.takes_rest) at.rest = same(ptx::LoadShared(note + 20));
    if constexpr (kGroup) at.group = same(ptx::LoadShared(note + 20));
    return at;
  }
};

}  // namespace gemmd::kernels::cuda
