// One tile of sm90_any_gemm: its products, and what becomes of them.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_math.cuh"
#include "kernels/cuda/ptx/cluster.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kScaleK = 128;  // k's, and rows of a square block, that share a scale

struct TileOrigin {
  int64_t batch, row, col;
};

// A CTA's part of k: 2^log2_count CTAs of a cluster each take some, in whole blocks of kScaleK.
struct KPart {
  int rank = 0;
  int log2_count = 0;
  int64_t begin = 0;
  int64_t end = 0;

  __device__ int count() const { return 1 << log2_count; }
  static __device__ KPart All(int64_t k) { return {0, 0, 0, k}; }
  static __device__ KPart Of(int64_t k, int rank, int log2_count) {
    const int64_t blocks = (k + kScaleK - 1) / kScaleK;
    const auto at = [&](int part) { return min(k, (blocks * part >> log2_count) * kScaleK); };
    return {rank, log2_count, at(rank), at(rank + 1)};
  }
};

// A CTA's shared memory: a stage or two of both operands, and behind the last one the tile's
// results.
struct AnySmem {
  alignas(16) unsigned char at[2 * 2 * kTileBytes];

  template <class Math>
  __device__ unsigned char* Stage(int buffer, int operand) {
    static_assert(Math::kBuffers * 2 * Math::kStagedBytes <= sizeof(at));
    return at + (buffer * 2 + operand) * Math::kStagedBytes;
  }

  // [kAnyTile][kResultPitch]
  template <class Total>
  __device__ Total* Results() {
    static_assert(sizeof(Total) * kAnyTile * kResultPitch <= sizeof(at));
    return reinterpret_cast<Total*>(at);
  }
  static constexpr int kResultPitch = kAnyTile + 1;
};

// The factor of one row (or column) in one block of k; 1 without scales and outside the matrix.
__device__ __forceinline__ float Factor(const ScaleView& scales, int64_t rows, int64_t batch,
                                        int64_t row, int64_t k_block) {
  if (scales.data == nullptr || row >= rows) return 1.0f;
  return scales.data[batch * scales.batch_stride +
                     (scales.row_blocks ? row / kScaleK : row) * scales.row_stride +
                     k_block * scales.k_stride];
}

// totals += acc by the factors of one block of k, and acc begins anew.
template <class Math>
__device__ __forceinline__ void AddBlock(const AnyGemmArgs& args, const TileOrigin& tile,
                                         int64_t k_block,
                                         typename Math::Accumulator (&acc)[kSide * kSide],
                                         typename Math::Total (&totals)[kSide * kSide]) {
  using Total = typename Math::Total;
  if (args.a.scales.data == nullptr && args.b.scales.data == nullptr) {
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i) totals[i] += static_cast<Total>(acc[i]);
  } else {
    float a_factors[kSide], b_factors[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      a_factors[i] = Factor(args.a.scales, args.m, tile.batch, tile.row + Math::Row(i), k_block);
      b_factors[i] = Factor(args.b.scales, args.n, tile.batch, tile.col + Math::Col(i), k_block);
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const int i = Math::Index(r, c);
        // From the left: the product of two huge factors would be infinite, and NaN times a 0.
        totals[i] += static_cast<Total>(acc[i]) * a_factors[r] * b_factors[c];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kSide * kSide; ++i) acc[i] = 0;
}

// totals = A . B^T of this thread's part of a tile, of the k's of `part`. A fresh accumulator for
// each 128 k's, so that scales can differ between them and FP32 sums of long k keep their
// precision.
template <class Math>
__device__ __forceinline__ void MultiplyTile(const AnyGemmArgs& args, const TileOrigin& tile,
                                             const KPart& part, AnySmem& smem,
                                             typename Math::Total (&totals)[kSide * kSide]) {
  constexpr int kStageK = kChunks * Math::kChunkElements;
  static_assert(kScaleK % kStageK == 0, "a stage must not straddle two scale blocks");
  const OperandView a = ViewOf<Math>(args.a, args.type, tile.batch, args.m);
  const OperandView b = ViewOf<Math>(args.b, args.b_type, tile.batch, args.n);
  typename Math::Accumulator acc[kSide * kSide] = {};
  StageLoader<Math> a_stage(a, tile.row, part.begin), b_stage(b, tile.col, part.begin);
  // One copy of the code, which comes from memory line by line: the first round only fetches.
  int buffer = 0;
#pragma unroll 1
  for (int64_t next = part.begin; next - kStageK < part.end; next += kStageK) {
    const bool multiplies = next > part.begin;
    if (multiplies) {
      if (Math::kBuffers == 1) __syncthreads();  // the one in front of it has been multiplied
      a_stage.Store(smem.Stage<Math>(buffer, 0));
      b_stage.Store(smem.Stage<Math>(buffer, 1));
      __syncthreads();  // the stage is whole; of two, the one in front of it has been multiplied
    }
    if (next < part.end) {
      a_stage.Fetch(part.end - next);
      b_stage.Fetch(part.end - next);
    }
    if (!multiplies) continue;
    Math::Multiply({smem.Stage<Math>(buffer, 0), a_stage.AlongRows()},
                   {smem.Stage<Math>(buffer, 1), b_stage.AlongRows()}, acc);
    buffer ^= Math::kBuffers - 1;
    if (next % kScaleK == 0 || next >= part.end) {
      AddBlock<Math>(args, tile, (next - kStageK) / kScaleK, acc, totals);
    }
  }
}

// A result in the shared memory of CTA `rank`.
template <class Total>
__device__ __forceinline__ Total LoadResult(const Total* here, int rank) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(here));
  const uint32_t there = ptx::MapToRank(address, rank);
  if constexpr (std::is_same_v<Total, double>) {
    return __hiloint2double(ptx::LoadRemote(there + 4), ptx::LoadRemote(there));
  } else {
    return __int_as_float(ptx::LoadRemote(there));
  }
}

// Results are FP32, BF16 or FP16.
__device__ __forceinline__ void StoreOut(ElementType type, char* to, float value) {
  if (type == ElementType::kF32) {
    *reinterpret_cast<float*>(to) = value;
  } else if (type == ElementType::kBF16) {
    *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
  } else {
    *reinterpret_cast<__half*>(to) = __float2half_rn(value);
  }
}
__device__ __forceinline__ float LoadOut(ElementType type, const char* from) {
  if (type == ElementType::kF32) return *reinterpret_cast<const float*>(from);
  if (type == ElementType::kBF16) {
    return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
  }
  return __half2float(*reinterpret_cast<const __half*>(from));
}

// Where a tile's result is that this thread stores first, and how far its next one.
struct ResultWalk {
  char* at;
  int64_t step;

  __device__ ResultWalk(const AnyResult& result, const TileOrigin& tile, int row, int col,
                        bool along_rows, int64_t size)
      : at(static_cast<char*>(result.data) +
           (tile.batch * result.batch_stride + (tile.row + row) * result.row_stride +
            (tile.col + col) * result.col_stride) *
               size),
        step((along_rows ? result.col_stride : result.row_stride) * size * kApart) {}
  static constexpr int kApart = kAnyThreads / kAnyTile;  // rows, or columns, from one to the next
};

// Sums of all parts' results, to where this CTA's are. All are on their way at once: another CTA's
// shared memory answers in a quarter of a microsecond. `count` of at most kSide * kSide >> kLog2
// elements, each of which no other thread or CTA has a share in.
template <int kLog2, class Total>
__device__ __forceinline__ void AddParts(Total* own, int step, int count) {
  constexpr int kParts = 1 << kLog2, kEach = kSide * kSide >> kLog2;
  Total of[kEach][kParts];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      of[i][p] = i < count ? LoadResult(own + i * step, p) : Total{0};
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    Total total = of[i][0];  // always in the same order, so that it is the same in every run
#pragma unroll
    for (int p = 1; p < kParts; ++p) total += of[i][p];
    if (i < count) own[i * step] = total;
  }
}
template <class Total>
__device__ __forceinline__ void AddParts(int log2_count, Total* own, int step, int count) {
  if (log2_count == 1) AddParts<1>(own, step, count);
  if (log2_count == 2) AddParts<2>(own, step, count);
  if (log2_count == 3) AddParts<3>(own, step, count);
}

// This CTA's part of a tile's rows, or of its columns where D lies along the rows: lanes run along
// whichever is dense. `kTileRows`: of the tile's columns it has kAnyTile. `kPlain`: without C, bias
// and activation.
template <bool kPlain, int kTileRows, class Total>
__device__ __forceinline__ void StoreShare(const AnyGemmArgs& args, const TileOrigin& tile,
                                           bool multiplied, const KPart& part, Total* results) {
  constexpr int kApart = ResultWalk::kApart;
  const int64_t size = ElementBytes(args.out);
  const bool along_rows = args.d.col_stride > args.d.row_stride;
  const int share = (along_rows ? kAnyTile : kTileRows) >> part.log2_count;
  const int inner = static_cast<int>(threadIdx.x) % kAnyTile;
  const int own = static_cast<int>(threadIdx.x) / kAnyTile, first = own + part.rank * share;
  const int row = along_rows ? inner : first, col = along_rows ? first : inner;
  const int rows = static_cast<int>(min(args.m - tile.row, static_cast<int64_t>(kTileRows)));
  const int cols = static_cast<int>(min(args.n - tile.col, static_cast<int64_t>(kAnyTile)));
  if (inner >= (along_rows ? rows : cols)) return;
  const int end = min((along_rows ? cols : rows) - first, share - own);
  ResultWalk d(args.d, tile, row, col, along_rows, size);
  ResultWalk c(kPlain ? args.d : args.c, tile, row, col, along_rows, size);
  Total* from = results + row * AnySmem::kResultPitch + col;
  const int from_step = (along_rows ? 1 : AnySmem::kResultPitch) * kApart;
  const Total alpha = multiplied ? args.alpha : 0.0f;
  AddParts(part.log2_count, from, from_step, (end + kApart - 1) / kApart);
#pragma unroll 1
  for (int i = 0; i < end; i += kApart) {
    Total value = alpha * *from;
    if constexpr (!kPlain) {
      if (args.beta != 0.0f) value += static_cast<Total>(args.beta) * LoadOut(args.out, c.at);
      c.at += c.step;
      if (args.bias != nullptr) {
        const int64_t at = (tile.col + col + (along_rows ? i : 0)) * args.bias_stride;
        value += LoadOut(args.bias_type,
                         static_cast<const char*>(args.bias) + at * ElementBytes(args.bias_type));
      }
      if (args.activation == ActivationType::kRelu) {
        if (value < 0) value = 0;  // not of NaN, which is not below 0
      } else if (args.activation != ActivationType::kNone) {
        value = Activate(args.activation, static_cast<float>(value));
      }
    }
    StoreOut(args.out, d.at, static_cast<float>(value));
    d.at += d.step;
    from += from_step;
  }
}

// What all threads of all parts' CTAs have put into shared memory, of which each CTA stores a share
// of the tile. `multiplied`: else results are zeros, whatever alpha is.
template <int kTileRows = kAnyTile, class Total>
__device__ __forceinline__ void StoreResults(const AnyGemmArgs& args, const TileOrigin& tile,
                                             bool multiplied, const KPart& part, Total* results) {
  const auto meet = [&] {
    if (part.log2_count == 0) return __syncthreads();
    ptx::ClusterArrive();
    ptx::ClusterWait();
  };
  meet();
  if (args.beta == 0.0f && args.bias == nullptr && args.activation == ActivationType::kNone) {
    StoreShare<true, kTileRows>(args, tile, multiplied, part, results);
  } else {
    StoreShare<false, kTileRows>(args, tile, multiplied, part, results);
  }
  meet();  // the results have been read
}

// The threads' totals of a tile.
template <class Math>
__device__ __forceinline__ void StoreTile(const AnyGemmArgs& args, const TileOrigin& tile,
                                          bool multiplied, const KPart& part, AnySmem& smem,
                                          const typename Math::Total (&totals)[kSide * kSide]) {
  auto* const results = smem.Results<typename Math::Total>();
  __syncthreads();  // the last stage has been multiplied
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      results[Math::Row(r) * AnySmem::kResultPitch + Math::Col(c)] = totals[Math::Index(r, c)];
    }
  }
  StoreResults(args, tile, multiplied, part, results);
}

}  // namespace gemmd::kernels::cuda
