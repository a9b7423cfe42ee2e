// The fast kernels: rows are dense and aligned, so that every load is 16 bytes, and each element is
// read once. Results stay in registers while their block's scale is found.

#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/ops/gated_math.cuh"
#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize_chunk.cuh"

namespace gemmd::kernels::cuda {
namespace {

// Small CTAs: the 16 rows of a decoding step then spread over all of a GPU.
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
// Eight lanes own a block of 128 columns, so a warp takes four of them: of as many rows if there
// are so many, and side by side otherwise.
constexpr int kLanesPerBlock = 8;
constexpr int kBlocksPerWarp = 32 / kLanesPerBlock;

// How a warp's blocks and a CTA's warps lie, and how gate and up do. Halves are a block of 2^62.
struct Shape {
  int rows_log2;    // of the blocks of a warp that lie along the rows, 0 or 2
  int warps_log2;   // of the warps of a CTA that lie along the columns
  int period_log2;  // not of alternating columns
  int64_t to_up;    // from a gate to its up, in columns
};

// How gates and ups lie: side by side, apart, or gates without ups.
enum class Arrangement : uint8_t { kAlternating, kApart, kAlone };

// The chunks of one dst chunk's gates and ups. Alternating ones fill two chunks in a row; gates
// alone have no second one.
template <ElementType kFrom>
struct Pair {
  Chunk<kFrom> first, second;
};

template <ElementType kFrom, Arrangement kArrangement>
__device__ __forceinline__ Pair<kFrom> LoadPair(const GatedArgs& args, const Shape& shape,
                                                int64_t row, int64_t col, bool valid) {
  if constexpr (kArrangement == Arrangement::kAlone)
    return {LoadChunk<kFrom>(args.src, row + col, valid), {}};
  if constexpr (kArrangement == Arrangement::kAlternating) {
    return {LoadChunk<kFrom>(args.src, row + 2 * col, valid),
            LoadChunk<kFrom>(args.src, row + 2 * col + Chunk<kFrom>::kElements, valid)};
  }
  // Column c of block b is column c of block 2b.
  const int64_t block = col >> shape.period_log2 << shape.period_log2;
  const int64_t at = row + block + col;
  return {LoadChunk<kFrom>(args.src, at, valid),
          LoadChunk<kFrom>(args.src, at + shape.to_up, valid)};
}

template <ElementType kFrom, Arrangement kArrangement>
__device__ __forceinline__ void Multiply(const GatedArgs& args, const Pair<kFrom>& pair,
                                         float (&y)[Chunk<kFrom>::kElements]) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  float first[kElements], second[kElements];
  pair.first.Expand(first);
  if constexpr (kArrangement == Arrangement::kAlone) return ActivateGates(args, first, y);
  pair.second.Expand(second);
  if constexpr (kArrangement == Arrangement::kAlternating) {
    float gate[kElements], up[kElements];
#pragma unroll
    for (int i = 0; i < kElements / 2; ++i) {
      gate[i] = first[2 * i];
      up[i] = first[2 * i + 1];
      gate[kElements / 2 + i] = second[2 * i];
      up[kElements / 2 + i] = second[2 * i + 1];
    }
    MultiplyGated(args, gate, up, y);
  } else {
    MultiplyGated(args, first, second, y);
  }
}

// Results rounded to kTo, in stores of up to 16 bytes.
template <ElementType kTo, int kCount>
__device__ __forceinline__ void StoreRounded(void* dst, int64_t element, const float (&y)[kCount]) {
  constexpr int kPerWord = 4 / ElementBytes(kTo);
  constexpr int kWords = kCount / kPerWord;
  uint32_t words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = FromF32(kTo, y[i * kPerWord]);
    if constexpr (kPerWord == 2) words[i] |= FromF32(kTo, y[2 * i + 1]) << 16;
  }
  char* const to = static_cast<char*>(dst) + element * ElementBytes(kTo);
  if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      reinterpret_cast<uint4*>(to)[i / 4] =
          make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }
}

// The codes of results under one scale. A run of four is a chunk of FP32, as Quantize has them.
template <int kCount>
__device__ __forceinline__ void StoreQuantised(void* dst, int64_t element, const float (&y)[kCount],
                                               float scale) {
  const auto divisor = MakeScaleDivisor(scale);
  uint32_t codes[kCount / 4];
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const Chunk<ElementType::kF32> chunk = {
        make_uint4(__float_as_uint(y[4 * i]), __float_as_uint(y[4 * i + 1]),
                   __float_as_uint(y[4 * i + 2]), __float_as_uint(y[4 * i + 3]))};
    uint32_t word[1];
    chunk.Encode<false>(divisor, word);
    codes[i] = word[0];
  }
  StoreCodes(static_cast<uint8_t*>(dst) + element, codes);
}

template <ElementType kFrom, ElementType kTo, Arrangement kArrangement>
__global__ void __launch_bounds__(kThreads, kFrom == ElementType::kF32 ? 6 : 8)
    GatedColumns(const __grid_constant__ GatedArgs args, const __grid_constant__ Shape shape) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  constexpr int kLoads = kQuantBlock / (kLanesPerBlock * kElements);
  constexpr bool kQuantised = kTo == ElementType::kE4M3;
  RowRange range;
  if (args.range_first) range.Load(args);
  BeginInTurn(args.independent);
  if (!args.range_first) range.Load(args);
  const int warp = threadIdx.x / 32;
  const int part = threadIdx.x % kLanesPerBlock;
  const int slot = threadIdx.x % 32 / kLanesPerBlock;
  const int slot_row = slot & ((1 << shape.rows_log2) - 1);
  const int slot_block = slot >> shape.rows_log2;
  const int64_t block = ((static_cast<int64_t>(blockIdx.x) << shape.warps_log2) +
                         (warp & ((1 << shape.warps_log2) - 1))) *
                            (kBlocksPerWarp >> shape.rows_log2) +
                        slot_block;
  const int64_t col0 = block * kQuantBlock + part * kElements;
  const int64_t row_step = (kWarps >> shape.warps_log2) << shape.rows_log2;
  const int64_t first =
      blockIdx.y * row_step + ((warp >> shape.warps_log2) << shape.rows_log2) + slot_row;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    // Every lane of a warp goes as many rounds as its first: all take part in the shuffles.
    for (int64_t row = first; row - slot_row < args.rows; row += gridDim.y * row_step) {
      const int64_t src_row = batch * args.src_batch + row * args.src_row;
      const int64_t dst_row = batch * args.dst_batch + row * args.dst_row;
      const bool valid = row < args.rows && range.Has(row) &&
                         (args.owners == nullptr || args.owners[batch * args.rows + row] >= 0);
      Pair<kFrom> pairs[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int64_t col = col0 + i * kLanesPerBlock * kElements;
        pairs[i] = LoadPair<kFrom, kArrangement>(args, shape, src_row, col, valid && col < args.n);
      }
      float y[kLoads][kElements];
      float amax = 0.0f;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int64_t col = col0 + i * kLanesPerBlock * kElements;
        Multiply<kFrom, kArrangement>(args, pairs[i], y[i]);
        if (!valid || col >= args.n) continue;
        if constexpr (kQuantised) {
#pragma unroll
          for (int j = 0; j < kElements; ++j) amax = AddMagnitude<false>(amax, y[i][j]);
        } else {
          StoreRounded<kTo>(args.dst, dst_row + col, y[i]);
        }
      }
      if constexpr (kQuantised) {
        const float scale = ScaleOf<false>(MaxOverLanes<kLanesPerBlock>(amax));
        if (!valid || block * kQuantBlock >= args.n) continue;
        if (part == 0) {
          args.scales[batch * args.scales_batch + row * args.scales_row +
                      block * args.scales_block] = scale;
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int64_t col = col0 + i * kLanesPerBlock * kElements;
          if (col < args.n) StoreQuantised(args.dst, dst_row + col, y[i], scale);
        }
      }
    }
  }
  EndInTurn(args.independent);
}

Shape ShapeOf(const GatedArgs& args) {
  Shape shape = {args.rows >= kBlocksPerWarp ? 2 : 0, 0, 62, args.period};
  if (args.period != args.n) {
    shape.period_log2 = 0;
    while (int64_t{1} << shape.period_log2 < args.period) ++shape.period_log2;
  }
  const int64_t warps = CeilDiv(args.n, kQuantBlock * (kBlocksPerWarp >> shape.rows_log2));
  while ((1 << shape.warps_log2) < kWarps && (1 << shape.warps_log2) < warps) ++shape.warps_log2;
  return shape;
}

template <ElementType kFrom, ElementType kTo>
cudaError_t LaunchFast(const GatedArgs& args, cudaStream_t stream) {
  const Shape shape = ShapeOf(args);
  const int64_t columns = (int64_t{kQuantBlock} * (kBlocksPerWarp >> shape.rows_log2))
                          << shape.warps_log2;
  const int64_t rows = (kWarps >> shape.warps_log2) << shape.rows_log2;
  const dim3 grid = GridOf(CeilDiv(args.n, columns), CeilDiv(args.rows, rows), args.batch);
  const auto kernel = args.alone         ? GatedColumns<kFrom, kTo, Arrangement::kAlone>
                      : args.period == 1 ? GatedColumns<kFrom, kTo, Arrangement::kAlternating>
                                         : GatedColumns<kFrom, kTo, Arrangement::kApart>;
  return LaunchKernel(kernel, grid, kThreads, args.programmatic, stream, args, shape);
}

template <ElementType kFrom>
cudaError_t LaunchFast(const GatedArgs& args, cudaStream_t stream) {
  switch (args.dst_type) {
    case ElementType::kF32:
      return LaunchFast<kFrom, ElementType::kF32>(args, stream);
    case ElementType::kBF16:
      return LaunchFast<kFrom, ElementType::kBF16>(args, stream);
    case ElementType::kF16:
      return LaunchFast<kFrom, ElementType::kF16>(args, stream);
    case ElementType::kE4M3:
      return LaunchFast<kFrom, ElementType::kE4M3>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

// Whether gates and ups can be loaded in chunks of 16 bytes, and a chunk's results stored at once.
bool Chunked(const GatedArgs& args) {
  const int64_t elements = 16 / ElementBytes(args.src_type);
  const auto divides = [elements](int64_t value) { return value % elements == 0; };
  const bool blocks = args.period == args.n || (args.period & (args.period - 1)) == 0;
  const int64_t dst_bytes = elements * ElementBytes(args.dst_type);
  return args.src_col == 1 && args.dst_col == 1 && divides(args.n) &&
         (args.alone || args.period == 1 || (blocks && divides(args.period))) &&
         (args.rows == 1 || (divides(args.src_row) && divides(args.dst_row))) &&
         (args.batch == 1 || (divides(args.src_batch) && divides(args.dst_batch))) &&
         reinterpret_cast<uintptr_t>(args.src) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.dst) % (dst_bytes < 16 ? dst_bytes : 16) == 0 &&
         args.n <= kMaxGridX * kQuantBlock;
}

}  // namespace

cudaError_t LaunchGated(const GatedArgs& args, cudaStream_t stream) {
  const bool quantised = args.dst_type == ElementType::kE4M3;
  if (args.batch <= 0 || args.rows <= 0 || args.n <= 0 || !Chunked(args) ||
      quantised != (args.scales != nullptr)) {
    return LaunchGatedAny(args, stream);
  }
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
