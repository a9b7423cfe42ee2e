// How a tile of a grouped matmul without block scales leaves: weights' rows are columns of D, so
// that results are turned on their way out. They have their scales by then, and are FP32.
//
// Kernels that finish (`kFinishes`) are for what NeedsFinish(), as dense ones are.

#pragma once

#include "kernels/cuda/sm90/direct/sm90_direct_group_math.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_scales.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_walk.cuh"
#include "kernels/cuda/sm90/direct/sm90_fp8_row_group_math.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// The store's bounds and bias are a tile's: of this copy the compiler keeps what the store reads.
struct TileBounds {
  GemmLaunch launch;
  __device__ explicit TileBounds(const GemmArgs& args) {
    launch.args = args;
    launch.args.beta = 0.0f;
    launch.streams_b = false;
  }
  __device__ __forceinline__ void MoveTo(const GroupTile& tile) { launch.args.m = tile.row_end; }
  __device__ __forceinline__ void MoveBiasTo(const DirectGroupedLaunch& all,
                                             const GroupTile& tile) {
    if (all.args.bias == nullptr) return;
    launch.args.bias =
        static_cast<const uint8_t*>(all.args.bias) + tile.group * all.bias_group_bytes;
  }
};

// What stores FP32 results of the same tile.
template <GemmConfig C>
constexpr GemmConfig OfFloats() {
  GemmConfig config = C;
  if (C.scales_results()) config.mma = Mma::kF16;
  return config;
}

template <GemmConfig C, GemmConfig T, bool kFinishes>
struct GroupStore {
  static constexpr GemmConfig kThin = OfFloats<T>();

  const DirectGroupedLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  typename GroupMathOf<C, T>::Type& math;
  TileBounds& bounds;
  Epilogue<kThin, true>& out;
  float bias[2] = {};  // of the lane's two rows of the weights, where results are adjusted

  static constexpr OutType kOwnType = C.mma == Mma::kF16 ? OutType::kF16 : OutType::kBF16;
  static constexpr int kPiece = T.result_regs();  // of T.cols columns

  // Whether all of D leaves by StoreRounded. Alpha, a bias and ReLU are added where sums lie.
  __device__ __forceinline__ bool Rounds() const {
    return out.whole && launch.args.out == kOwnType &&
           (!kFinishes || launch.args.activation <= ActivationType::kRelu);
  }

  __device__ __forceinline__ void MoveTo(const GroupStop& stop) {
    bounds.MoveTo(stop.rows);
    if constexpr (kFinishes) bounds.MoveBiasTo(launch, stop.rows);
    out.tile = {(stop.n * C.share_cols + place.row) * C.rows, stop.rows.row0, stop.rows.item};
  }

  // Of the next tile: on its way while it multiplies.
  __device__ __forceinline__ void FetchBias(const GroupStop& stop) {
    MoveTo(stop);
    const GemmArgs& args = bounds.launch.args;
    if (!Rounds() || args.bias == nullptr) return;
    const int n = out.SubRow(0) + out.warp * 16 + out.lane / 4;
    const int last = static_cast<int>(args.n) - 1;  // results behind it go nowhere
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bias[i] =
          LoadAs(args.bias, min(n + i * 8, last), args.bias_is_f32 ? OutType::kF32 : args.out);
    }
  }

  __device__ __forceinline__ void Adjust() const {
    const float floor = launch.args.relu ? 0.0f : -__builtin_inff();
#pragma unroll
    for (int i = 0; i < C.result_regs(); ++i) {
      const float sum = __fmaf_rn(BitsOf(math.result[i]), launch.args.alpha, bias[i % 4 / 2]);
      math.result[i] = FromBits<Sum<C>>(ptx::MaxNaN(sum, floor));  // NaN stays NaN
    }
  }

  __device__ __forceinline__ void Store(const GroupStop& stop) {
    MoveTo(stop);
    if (Rounds()) {
      if constexpr (kFinishes) Adjust();
      StoreRounded(stop.rows.row_end);
    } else {
      StoreAny(stop);
    }
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }

  // Rounded to the operands' type, in whole units of D. A warp is on its own: its 16 rows of the
  // weights make 32 bytes of each of D's rows, in two units that lie in turns so that stmatrix is
  // free of bank conflicts.
  __device__ __forceinline__ void StoreRounded(int row_end) const {
    constexpr int kRowUnits = 2, kUnitBytes = 16, kRowsAtOnce = 32 / kRowUnits;
    const int lane = out.lane;
    const uint32_t staging = smem.base + SmemLayout<C>::kStore +
                             (out.group * 4 + out.warp) * (T.cols * kRowUnits * kUnitBytes);
    const auto unit = [staging](int row, int half) {
      return staging + (row * kRowUnits + (half ^ (row / 4 & 1))) * kUnitBytes;
    };
    const uint32_t to = unit(lane % 8, lane / 8 % 2);
    const uint32_t from = unit(lane / 2, lane % 2);
    const int n = out.SubRow(0) + out.warp * 16 + lane % 2 * 8;
    const bool inside = n < static_cast<int>(launch.args.n);
    const int64_t ldd = launch.args.ldd;
    int m = out.tile.col0 + lane / 2;
    uint16_t* target =
        static_cast<uint16_t*>(launch.args.d) + out.tile.batch * launch.args.d_batch + m * ldd + n;
#pragma unroll
    for (int piece = 0; piece < C.cols / T.cols; ++piece) {
      if (piece > 0 && out.tile.col0 + piece * T.cols >= row_end) break;
      __syncwarp();  // the last piece has been read
#pragma unroll
      for (int chunk = 0; chunk < T.cols / 8; ++chunk) {
        const Sum<C>* const v = math.result + piece * kPiece + chunk * 4;
        ptx::StMatrix2Transposed(to + chunk * 8 * kRowUnits * kUnitBytes,
                                 Pack2(BitsOf(v[0]), BitsOf(v[1]), kOwnType),
                                 Pack2(BitsOf(v[2]), BitsOf(v[3]), kOwnType));
      }
      __syncwarp();
      float4 units[T.cols / kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < T.cols / kRowsAtOnce; ++i) {
        units[i] = ptx::LoadShared4(from + i * 32 * kUnitBytes);
      }
#pragma unroll
      for (int i = 0; i < T.cols / kRowsAtOnce; ++i, m += kRowsAtOnce) {
        ptx::StoreGlobal4If(inside && m < row_end, target, units[i]);
        target += kRowsAtOnce * ldd;
      }
    }
  }

  // By a thin tile's store, once for each of its widths that a tile has: one copy of the code, to
  // which the results move up.
  __device__ __forceinline__ void StoreAny(const GroupStop& stop) {
#pragma unroll 1
    while (true) {
      if constexpr (kSumsIntegers<C>) {
        float piece[kPiece];
#pragma unroll
        for (int i = 0; i < kPiece; ++i) piece[i] = BitsOf(math.result[i]);
        StorePiece(piece);
      } else {
        StorePiece(reinterpret_cast<float(&)[kPiece]>(math.result[0]));
      }
      out.tile.col0 += T.cols;
      if (out.tile.col0 >= stop.rows.row_end) break;
#pragma unroll
      for (int i = 0; i + kPiece < C.result_regs(); ++i) math.result[i] = math.result[i + kPiece];
    }
  }
  __device__ __forceinline__ void StorePiece(float (&piece)[kPiece]) const {
    const SmemLayout<kThin> thin{smem.base};
    if constexpr (kFinishes) {
      NoRingAddend none;
      TileBias<kThin, Epilogue<kThin, true>> all_bias;
      all_bias.Load(out);
      StoreFinished<kThin>(bounds.launch, thin, out, piece, none, all_bias);
    } else {
      StoreWhole<kThin>(bounds.launch, thin, out, piece);
    }
  }
};

}  // namespace gemmd::kernels::cuda
