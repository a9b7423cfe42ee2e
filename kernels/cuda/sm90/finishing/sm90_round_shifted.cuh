// Results that are only rounded, to rows of D that begin anywhere, as those of an odd n do: units
// of 16 bytes where D has whole ones, taken out of two units of what is staged, and single results
// at the ends of each run.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/unaligned.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"

namespace gemmd::kernels::cuda {

// Half a warp a row: eight lanes for its units, eight for the results that are in none.
template <GemmConfig C, class Out>
struct ShiftedCopy {
  static constexpr int kLanes = 16, kUnitLanes = 8, kUnit = 8;  // results
  static constexpr int kRowsAtOnce = C.skinny() ? 4 * 32 / kLanes : 32 / kLanes;

  const Out& out;
  int part;  // of the row's lanes
  int row;   // the first one
  int rows;
  int m0;     // of the first staged row
  int n0;     // of the first staged column
  int limit;  // columns that are staged and in D
  uint16_t* d;

  __device__ __forceinline__ ShiftedCopy(const Out& out, int sub, int first, int last) : out(out) {
    const int lane = out.lane;
    part = lane % kLanes;
    row = lane / kLanes + (C.skinny() ? out.warp * 2 : 0);
    const int across = C.skinny() ? out.SubRow(sub) : out.SubRow(sub) + out.warp * 16;
    const int along = out.tile.col0 + first * 8;
    rows = C.skinny() ? (last - first) * 8 : 16;
    m0 = C.skinny() ? along : across;
    n0 = C.skinny() ? across : along;
    const int staged = C.skinny() ? 64 : (last - first) * 8;
    limit = min(staged, static_cast<int>(out.args.n) - n0);
    rows = min(rows, static_cast<int>(out.args.m) - m0);
    d = static_cast<uint16_t*>(out.args.d) + out.tile.batch * out.args.d_batch + n0;
  }

  __device__ __forceinline__ void Run() const {
#pragma unroll 2
    for (int i = row; i < rows; i += kRowsAtOnce) {
      uint16_t* const to = d + (m0 + i) * out.args.ldd;
      const uint32_t from = out.staging + i * Out::kPitch;
      // Results in front of the first whole unit.
      const int front = static_cast<int>(-(reinterpret_cast<uint64_t>(to) / 2) % kUnit);
      const int units = max(0, limit - front) / kUnit;
      if (part < kUnitLanes) {
        if (part >= units) continue;
        const uint32_t at = from + part * 16;
        const float4 low = ptx::LoadShared4(at);
        // Of nothing in front there is none behind, and staging may end there.
        const float4 high = front > 0 ? ptx::LoadShared4(at + 16) : low;
        *reinterpret_cast<uint4*>(to + front + part * kUnit) =
            BytesFrom(Bits(low), Bits(high), front * 2);
      } else {
        for (int j = part - kUnitLanes; j < limit - units * kUnit; j += kUnitLanes) {
          const int column = j < front ? j : j + units * kUnit;
          to[column] = ptx::LoadShared16(from + column * 2);
        }
      }
    }
  }

  static __device__ __forceinline__ uint4 Bits(float4 v) {
    return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                      __float_as_uint(v.w));
  }
};

// A warpgroup's whole sums, rounded.
template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreShifted(const Out& out,
                                             const Sum<C> (&result)[C.result_regs()]) {
  static_assert(!C.stages_halves(), "whole rows are staged");
#pragma unroll
  for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
    for (int first = 0; first < Out::kChunks; first += Out::kStep) {
      const int last = min(first + Out::kStep, Out::kChunks);
      out.Sync();
#pragma unroll
      for (int chunk = first; chunk < last; ++chunk) {
        out.Stage(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
      }
      out.Sync();
      ShiftedCopy<C, Out>(out, sub, first, last).Run();
    }
  }
}

}  // namespace gemmd::kernels::cuda
