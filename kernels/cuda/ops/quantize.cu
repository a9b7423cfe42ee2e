// The fast kernels: rows are dense and aligned, so that every load is 16 bytes and each element is
// read once and kept in registers while its block's scale is found.

#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/cuda/ops/quantize_chunk.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// 1x128. Eight lanes own a block, 16 elements each, so a warp takes four rows at once, twice: eight
// rows of one k block, whose m-major scales are 32 neighbouring bytes.
constexpr int kLanesPerBlock = 8;
constexpr int kBlocksAtOnce = 32 / kLanesPerBlock;
constexpr int kTurns = 2;
constexpr int kRowsPerWarp = kBlocksAtOnce * kTurns;

// A CTA's warps lie 2^k_warps_log2 along k and the rest along the rows.
// The largest magnitudes of the blocks that a warp's groups of lanes hold, one of each turn.
template <ElementType kType, int kLoads>
__device__ __forceinline__ void LargestOf(const Chunk<kType> (&chunks)[kTurns][kLoads],
                                          float (&amax)[kTurns]) {
  if constexpr (!Chunk<kType>::kNarrow) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      amax[turn] = MaxOverLanes<kLanesPerBlock>(LargestOfAll(chunks[turn]));
    }
  } else {  // both turns travel between lanes as one word
    static_assert(kTurns == 2);
    uint32_t pairs[kTurns] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) pairs[turn] = chunks[turn][i].AddPairsTo(pairs[turn]);
    }
    uint32_t both = MaxNaNx2<kType>(__byte_perm(pairs[0], pairs[1], 0x5410),
                                    __byte_perm(pairs[0], pairs[1], 0x7632));
#pragma unroll
    for (int step = kLanesPerBlock / 2; step > 0; step /= 2) {
      both = MaxNaNx2<kType>(both, __shfl_xor_sync(0xffffffffu, both, step));
    }
    amax[0] = ToF32(kType, both & 0xffffu);
    amax[1] = ToF32(kType, both >> 16);
  }
}

// What the blocks are divided by. A scale takes as long as some elements: half of a block's lanes
// find the first turn's, the other half the second's.
template <bool kI8>
__device__ __forceinline__ void DivisorsOf(const float (&amax)[kTurns], int part,
                                           float (&scales)[kTurns],
                                           ScaleDivisor (&divisors)[kTurns]) {
  static_assert(kTurns == 2);
  constexpr int kHalf = kLanesPerBlock / 2;
  const bool second = part >= kHalf;
  const float scale = ScaleOf<kI8>(second ? amax[1] : amax[0]);
  const ScaleDivisor divisor = MakeScaleDivisor(scale);
  const float other_scale = __shfl_xor_sync(0xffffffffu, scale, kHalf);
  const float other_reciprocal = __shfl_xor_sync(0xffffffffu, divisor.negative_reciprocal, kHalf);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool own = second == (turn == 1);
    scales[turn] = own ? scale : other_scale;
    divisors[turn] = Lifted(scales[turn], own ? divisor.negative_reciprocal : other_reciprocal);
  }
}

template <ElementType kType, bool kI8, bool kGathers>
__global__ void __launch_bounds__(kThreads, kType == ElementType::kBF16 && !kI8 ? 5 : 4)
    Quantize1x128(const __grid_constant__ QuantizeArgs args, int k_warps_log2) {
  using C = Chunk<kType>;
  constexpr int kLoads = kQuantBlock / (kLanesPerBlock * C::kElements);
  BeginInTurn(args.independent);
  const int warp = threadIdx.x / 32;
  const int part = threadIdx.x % kLanesPerBlock;
  const int slot = threadIdx.x % 32 / kLanesPerBlock;
  const int64_t k_block =
      (static_cast<int64_t>(blockIdx.x) << k_warps_log2) + (warp & ((1 << k_warps_log2) - 1));
  const int64_t k0 = k_block * kQuantBlock + part * C::kElements;
  if (k_block * kQuantBlock >= args.k) return;  // the whole warp
  const int row_warps = kWarps >> k_warps_log2;
  const int64_t first =
      (static_cast<int64_t>(blockIdx.y) * row_warps + (warp >> k_warps_log2)) * kRowsPerWarp;
  const int64_t step = static_cast<int64_t>(gridDim.y) * row_warps * kRowsPerWarp;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t row0 = first; row0 < args.rows; row0 += step) {
      C chunks[kTurns][kLoads];
      int64_t sources[kTurns];  // rows of src; -1: none
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int64_t row = row0 + turn * kBlocksAtOnce + slot;
        if constexpr (kGathers) sources[turn] = row < args.rows ? SourceRow(args, row) : -1;
      }
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int64_t row = row0 + turn * kBlocksAtOnce + slot;
        const int64_t source = kGathers ? sources[turn] : row;
        const bool valid = kGathers ? source >= 0 : row < args.rows;
        const int64_t at = batch * args.src_batch + source * args.src_row + k0;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int offset = i * kLanesPerBlock * C::kElements;
          chunks[turn][i] = LoadChunk<kType>(args.src, at + offset, valid && k0 + offset < args.k);
        }
      }
      float amax[kTurns], scales[kTurns];
      ScaleDivisor divisors[kTurns];
      LargestOf(chunks, amax);
      bool finite = true;  // what the warp holds
      if constexpr (kI8) {
        finite = __all_sync(0xffffffffu, amax[0] < kInf && amax[1] < kInf);
        if (!finite) {
#pragma unroll
          for (int turn = 0; turn < kTurns; ++turn) {
            amax[turn] = MaxOverLanes<kLanesPerBlock>(LargestFinite(chunks[turn]));
          }
        }
      }
      DivisorsOf<kI8>(amax, part, scales, divisors);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int64_t row = row0 + turn * kBlocksAtOnce + slot;
        if (row >= args.rows || (kGathers && sources[turn] < 0)) continue;
        if (part == 0) {
          args.scales[batch * args.scales_batch + row * args.scales_row + k_block * args.scales_k] =
              scales[turn];
        }
        uint8_t* target =
            static_cast<uint8_t*>(args.dst) + batch * args.dst_batch + row * args.dst_row + k0;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int offset = i * kLanesPerBlock * C::kElements;
          if (k0 + offset >= args.k) continue;
          uint32_t codes[C::kCodeWords];
          chunks[turn][i].template Encode<kI8>(divisors[turn], codes, finite);
          StoreCodes(target + offset, codes);
        }
      }
    }
  }
  EndInTurn(args.independent);
}

// 128x128. A CTA owns a block; each warp 16 of its rows.
template <ElementType kType, bool kI8>
__global__ void __launch_bounds__(kThreads, kType == ElementType::kF32 ? 2 : 4)
    Quantize128x128(const __grid_constant__ QuantizeArgs args) {
  using C = Chunk<kType>;
  constexpr int kLanesPerRow = kQuantBlock / C::kElements;
  constexpr int kRowsAtOnce = 32 / kLanesPerRow;
  constexpr int kLoads = kQuantBlock / kWarps / kRowsAtOnce;
  __shared__ float warp_max[kWarps];
  BeginInTurn(args.independent);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int row_in_block = warp * (kQuantBlock / kWarps) + lane / kLanesPerRow;
  const int64_t k_block = blockIdx.x;
  const int64_t k0 = k_block * kQuantBlock + lane % kLanesPerRow * C::kElements;
  const int64_t row_blocks = CeilDiv(args.rows, kQuantBlock);
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t row_block = blockIdx.y; row_block < row_blocks; row_block += gridDim.y) {
      const int64_t row0 = row_block * kQuantBlock + row_in_block;
      const int64_t at = batch * args.src_batch + row0 * args.src_row + k0;
      C chunks[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int offset = i * kRowsAtOnce;
        chunks[i] = LoadChunk<kType>(args.src, at + offset * args.src_row,
                                     row0 + offset < args.rows && k0 < args.k);
      }
      const auto of_block = [&](float amax) {
        amax = MaxOverLanes<32>(amax);
        if (lane == 0) warp_max[warp] = amax;
        __syncthreads();  // every warp's maximum is there
        amax = MaxOverLanes<kWarps>(warp_max[lane % kWarps]);
        __syncthreads();  // and has been read, before the next one overwrites it
        return amax;
      };
      float amax = of_block(LargestOfAll(chunks));
      const bool finite = amax < kInf;  // of the whole block alike
      if (kI8 && !finite) amax = of_block(LargestFinite(chunks));
      const float scale = ScaleOf<kI8>(amax);
      const ScaleDivisor divisor = MakeScaleDivisor(scale);
      if (threadIdx.x == 0) {
        args.scales[batch * args.scales_batch + row_block * args.scales_row +
                    k_block * args.scales_k] = scale;
      }
      uint8_t* target =
          static_cast<uint8_t*>(args.dst) + batch * args.dst_batch + row0 * args.dst_row + k0;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int offset = i * kRowsAtOnce;
        if (row0 + offset >= args.rows || k0 >= args.k) continue;
        uint32_t codes[C::kCodeWords];
        chunks[i].template Encode<kI8>(divisor, codes, finite);
        StoreCodes(target + offset * args.dst_row, codes);
      }
    }
  }
  EndInTurn(args.independent);
}

template <ElementType kType, bool kI8>
cudaError_t LaunchFast(const QuantizeArgs& args, cudaStream_t stream) {
  const int64_t k_blocks = CeilDiv(args.k, kQuantBlock);
  if (args.block == QuantizeBlock::k128x128) {
    return LaunchKernel(Quantize128x128<kType, kI8>,
                        GridOf(k_blocks, CeilDiv(args.rows, kQuantBlock), args.batch), kThreads,
                        args.programmatic, stream, args);
  }
  int k_warps_log2 = 0;
  while ((1 << k_warps_log2) < kWarps && (1 << k_warps_log2) < k_blocks) ++k_warps_log2;
  const int64_t rows_per_cta = (kWarps >> k_warps_log2) * kRowsPerWarp;
  const auto kernel =
      args.from != nullptr ? Quantize1x128<kType, kI8, true> : Quantize1x128<kType, kI8, false>;
  return LaunchKernel(kernel,
                      GridOf(CeilDiv(k_blocks, int64_t{1} << k_warps_log2),
                             CeilDiv(args.rows, rows_per_cta), args.batch),
                      kThreads, args.programmatic, stream, args, k_warps_log2);
}

template <ElementType kType>
cudaError_t LaunchFast(const QuantizeArgs& args, cudaStream_t stream) {
  return args.dst_type == ElementType::kI8 ? LaunchFast<kType, true>(args, stream)
                                           : LaunchFast<kType, false>(args, stream);
}

// Whether rows can be loaded in chunks of 16 bytes and stored in as many codes.
bool Chunked(const QuantizeArgs& args) {
  const int64_t elements = 16 / ElementBytes(args.src_type);
  const auto divides = [elements](int64_t value) { return value % elements == 0; };
  const bool fits = args.block == QuantizeBlock::kRow
                        ? args.k * ElementBytes(args.src_type) <= kMostRowBytes
                        : args.block != QuantizeBlock::kTensor;
  return fits && args.src_k == 1 && args.dst_k == 1 && divides(args.k) &&
         (args.rows == 1 || (divides(args.src_row) && divides(args.dst_row))) &&
         (args.batch == 1 || (divides(args.src_batch) && divides(args.dst_batch))) &&
         reinterpret_cast<uintptr_t>(args.src) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.dst) % elements == 0 && args.k <= kMaxGridX * kQuantBlock;
}

}  // namespace

cudaError_t LaunchQuantize(const QuantizeArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.rows <= 0 || args.k <= 0 || !Chunked(args) ||
      args.dst_type == ElementType::kE5M2) {
    return LaunchQuantizeAny(args, stream);
  }
  if (args.dst_type != ElementType::kE4M3 && args.dst_type != ElementType::kI8) {
    return cudaErrorInvalidValue;
  }
  if (args.block == QuantizeBlock::kRow) return LaunchQuantizeRows(args, stream);
  switch (args.src_type) {
    case ElementType::kF32:
      return LaunchFast<ElementType::kF32>(args, stream);
    case ElementType::kBF16:
      return LaunchFast<ElementType::kBF16>(args, stream);
    case ElementType::kF16:
      return LaunchFast<ElementType::kF16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gemmd::kernels::cuda
