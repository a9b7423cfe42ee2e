// The fast kernels: rows are dense and aligned, so that every load is 16 bytes, and each element is
// read once. Results stay in registers while their block's scale is found.

#include <algorithm>

#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/ops/gated_math.cuh"
#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize_chunk.cuh"
#include "kernels/cuda/ops/store_results.cuh"

namespace gemmd::kernels::cuda {
namespace {

// Small CTAs: the 16 rows of a decoding step then spread over all of a GPU.
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
// Eight lanes own a block of 128 columns, so a warp takes four of them: of as many rows if there
// are so many, and side by side otherwise.
constexpr int kLanesPerBlock = 8;
constexpr int kBlocksPerWarp = 32 / kLanesPerBlock;

constexpr int64_t kMostExtent = int64_t{1} << 30;  // of rows and columns, which are counted in int
// Of an H200, of eight CTAs an SM.
constexpr int64_t kCtasAtOnce = 132 * 8;

// How a warp's blocks and a CTA's warps lie, and how gate and up do. Halves are a block of 2^62.
struct Shape {
  int rows_log2;     // of the blocks of a warp that lie along the rows, 0 or 2
  int warps_log2;    // of the warps of a CTA that lie along the columns
  int period_log2;   // not of alternating columns
  int64_t to_up;     // from a gate to its up, in columns
  int rows_at_once;  // by the grid; a thread goes on by so many rows, which are, in bytes:
  int64_t src_step, dst_step, scales_step;
};

// How gates and ups lie: side by side, apart, or gates without ups.
enum class Arrangement : uint8_t { kAlternating, kApart, kAlone };

// The chunks of one dst chunk's gates and ups. Alternating ones fill two chunks in a row; gates
// alone have no second one.
template <ElementType kFrom>
struct Pair {
  Chunk<kFrom> first, second;
};

// Where a dst column's gate lies in a row of src.
template <Arrangement kArrangement>
__device__ __forceinline__ int64_t GateColumn(const Shape& shape, int64_t col) {
  if constexpr (kArrangement == Arrangement::kAlone) return col;
  if constexpr (kArrangement == Arrangement::kAlternating) return 2 * col;
  // Column c of block b is column c of block 2b.
  return (col >> shape.period_log2 << shape.period_log2) + col;
}

template <ElementType kFrom, Arrangement kArrangement>
__device__ __forceinline__ Pair<kFrom> LoadPair(const char* gates, int64_t to_up, bool valid) {
  const auto first = LoadChunk<kFrom>(gates, 0, valid);
  if constexpr (kArrangement == Arrangement::kAlone) return {first, {}};
  if constexpr (kArrangement == Arrangement::kApart) {
    return {first, LoadChunk<kFrom>(gates, to_up, valid)};
  }
  return {first, LoadChunk<kFrom>(gates, Chunk<kFrom>::kElements, valid)};
}

template <ElementType kFrom, Arrangement kArrangement>
__device__ __forceinline__ void Multiply(const GatedArgs& args, const Pair<kFrom>& pair, float* y) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  float first[kElements], second[kElements];
  pair.first.Expand(first);
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

// A thread's results in one row. Of gates alone one branch tells the activation for all; pairs
// would take too many registers so.
template <ElementType kFrom, Arrangement kArrangement, int kLoads, int kCount>
__device__ __forceinline__ void MultiplyAll(const GatedArgs& args,
                                            const Pair<kFrom> (&pairs)[kLoads],
                                            float (&y)[kCount]) {
  constexpr int kElements = Chunk<kFrom>::kElements;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if constexpr (kArrangement != Arrangement::kAlone) {
      Multiply<kFrom, kArrangement>(args, pairs[i], y + i * kElements);
    } else {
      float gates[kElements];
      pairs[i].first.Expand(gates);
#pragma unroll
      for (int j = 0; j < kElements; ++j) y[i * kElements + j] = gates[j];
    }
  }
  if constexpr (kArrangement == Arrangement::kAlone) ActivateGates(args, y, y);
}

template <ElementType kFrom, ElementType kTo, Arrangement kArrangement>
__global__ void __launch_bounds__(kThreads, kFrom == ElementType::kF32 ? 6 : 8)
    GatedColumns(const __grid_constant__ GatedArgs args, const __grid_constant__ Shape shape) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  constexpr int kLoads = kQuantBlock / (kLanesPerBlock * kElements);
  constexpr int kStep = kLanesPerBlock * kElements;  // from a thread's chunk to its next
  constexpr bool kQuantised = kTo == ElementType::kE4M3;
  // A row's loads are under way while the one in front is computed, where registers allow it.
  constexpr bool kAhead = kArrangement == Arrangement::kAlone && kFrom != ElementType::kF32;
  RowRange range;
  if (args.range_first) range.Load(args);
  BeginInTurn(args.independent);
  if (!args.range_first) range.Load(args);
  const int warp = threadIdx.x / 32;
  const int part = threadIdx.x % kLanesPerBlock;
  const int slot = threadIdx.x % 32 / kLanesPerBlock;
  const int slot_row = slot & ((1 << shape.rows_log2) - 1);
  const int64_t block = ((static_cast<int64_t>(blockIdx.x) << shape.warps_log2) +
                         (warp & ((1 << shape.warps_log2) - 1))) *
                            (kBlocksPerWarp >> shape.rows_log2) +
                        (slot >> shape.rows_log2);
  const int64_t col0 = block * kQuantBlock + part * kElements;
  const int left = static_cast<int>(args.n - col0);  // columns
  const bool has_block = block * kQuantBlock < args.n;
  const int first =
      static_cast<int>(blockIdx.y) * ((kWarps >> shape.warps_log2) << shape.rows_log2) +
      ((warp >> shape.warps_log2) << shape.rows_log2) + slot_row;
  const int rows = static_cast<int>(args.rows);
  int64_t from_row[kLoads];  // of a chunk's gates to its row's begin, bytes
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    from_row[i] = GateColumn<kArrangement>(shape, col0 + i * kStep) * ElementBytes(kFrom);
  }
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    const char* src = static_cast<const char*>(args.src) +
                      (batch * args.src_batch + first * args.src_row) * ElementBytes(kFrom);
    char* dst = static_cast<char*>(args.dst) +
                (batch * args.dst_batch + first * args.dst_row + col0) * ElementBytes(kTo);
    char* scale_at = reinterpret_cast<char*>(args.scales + batch * args.scales_batch +
                                             first * args.scales_row + block * args.scales_block);
    const auto is_valid = [&](int row) {
      return row < rows && range.Has(row) &&
             (args.owners == nullptr || args.owners[batch * args.rows + row] >= 0);
    };
    // What lies behind n is 0, and so are its results.
    const auto load = [&](bool valid, Pair<kFrom>(&pairs)[kLoads]) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        pairs[i] = LoadPair<kFrom, kArrangement>(src + from_row[i], shape.to_up,
                                                 valid && i * kStep < left);
      }
    };
    Pair<kFrom> pairs[kLoads];
    bool valid = is_valid(first);
    load(valid, pairs);
    // Every lane of a warp goes as many rounds as its first: all take part in the shuffles.
    for (int row = first; row - slot_row < rows; row += shape.rows_at_once) {
      src += shape.src_step;
      Pair<kFrom> next[kLoads];
      bool next_valid = false;
      if constexpr (kAhead) {
        next_valid = is_valid(row + shape.rows_at_once);
        load(next_valid, next);
      }
      float y[kLoads * kElements];
      MultiplyAll<kFrom, kArrangement>(args, pairs, y);
      const auto store = [&](auto store_chunk) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          if (i * kStep < left) store_chunk(dst + i * kStep * ElementBytes(kTo), y + i * kElements);
        }
      };
      if constexpr (kQuantised) {
        float amax = 0.0f;
#pragma unroll
        for (int i = 0; i < kLoads * kElements; ++i) amax = AddMagnitude<false>(amax, y[i]);
        const float scale = ScaleOf<false>(MaxOverLanes<kLanesPerBlock>(amax));
        if (valid && has_block) {
          if (part == 0) *reinterpret_cast<float*>(scale_at) = scale;
          const ScaleDivisor divisor = MakeScaleDivisor(scale);
          store([&](char* to, const float* of) { StoreQuantised<kElements>(to, of, divisor); });
        }
      } else if (valid) {
        store([&](char* to, const float* of) { StoreRounded<kTo, kElements>(to, of); });
      }
      dst += shape.dst_step;
      scale_at += shape.scales_step;
      if constexpr (kAhead) {
        valid = next_valid;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) pairs[i] = next[i];
      } else {
        valid = is_valid(row + shape.rows_at_once);
        load(valid, pairs);
      }
    }
  }
  EndInTurn(args.independent);
}

Shape ShapeOf(const GatedArgs& args) {
  Shape shape = {
      .rows_log2 = args.rows >= kBlocksPerWarp ? 2 : 0, .period_log2 = 62, .to_up = args.period};
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
  Shape shape = ShapeOf(args);
  const int64_t columns = (int64_t{kQuantBlock} * (kBlocksPerWarp >> shape.rows_log2))
                          << shape.warps_log2;
  const int64_t rows = (kWarps >> shape.warps_log2) << shape.rows_log2;
  const int64_t across = CeilDiv(args.n, columns);
  // No more than run at once: a thread then goes on to other rows, and finds its columns once.
  const int64_t at_once = CeilDiv(kCtasAtOnce, across * args.batch);
  const dim3 grid = GridOf(across, std::min(CeilDiv(args.rows, rows), at_once), args.batch);
  shape.rows_at_once = static_cast<int>(grid.y * rows);
  shape.src_step = shape.rows_at_once * args.src_row * ElementBytes(kFrom);
  shape.dst_step = shape.rows_at_once * args.dst_row * ElementBytes(kTo);
  shape.scales_step = shape.rows_at_once * args.scales_row * int64_t{sizeof(float)};
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
         args.n < kMostExtent && args.rows < kMostExtent;
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
