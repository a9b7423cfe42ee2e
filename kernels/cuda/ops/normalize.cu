// Layer and RMS norms. A row's threads keep it in registers from its load to its results; other
// layouts go element by element, a CTA for a row.

#include <algorithm>

#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/normalize.h"
#include "kernels/cuda/ops/store_results.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kLeastThreads = 128;  // of a CTA: several rows share one that needs fewer
constexpr int kMostThreads = 1024;
constexpr int kMostLoads = 4;                   // of a thread in a row
constexpr int64_t kFewRows = 264;               // two CTAs an SM: then more threads a row pay
constexpr int64_t kThreadsAtOnce = 132 * 2048;  // of an H200
constexpr int kAnyThreads = 256;
constexpr int64_t kMostRows = int64_t{1} << 30;  // which are counted in int

__device__ __forceinline__ float SumOverWarp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Sums over the threads of a row, of one warp or more. All threads of the CTA take part.
class RowSums {
 public:
  // `warps` of a row, a power of two.
  __device__ __forceinline__ RowSums(float (*parts)[32], int warps)
      : parts_(parts), warps_(warps), first_(static_cast<int>(threadIdx.x) / 32 & -warps) {}

  __device__ __forceinline__ float Of(float x) {
    const float sum = SumOverWarp(x);
    if (warps_ == 1) return sum;
    // By turns in two places: who is late with one sum reads it while others write the next.
    float* const parts = parts_[turn_];
    turn_ ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    return SumOverWarp(lane < warps_ ? parts[first_ + lane] : 0.0f);
  }

 private:
  float (*parts_)[32];
  int warps_, first_;
  int turn_ = 0;
};

// What a row's elements are multiplied with, from the sum of their squares.
__device__ __forceinline__ float FactorOf(float squares, float reciprocal_n, float epsilon) {
  return __frcp_rn(__fsqrt_rn(__fmaf_rn(squares, reciprocal_n, epsilon)));
}

// `count` numbers of a vector from column `col` on, which is a multiple of four and dense.
template <int kCount>
__device__ __forceinline__ void LoadVector(const float* vector, int64_t col, float (&out)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(vector + col) + i / 4);
    out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
  }
}

// The sums of two chunks, rounded to their type. A NaN is some NaN.
template <ElementType kType>
__device__ __forceinline__ Chunk<kType> SumOf(const Chunk<kType>& one, const Chunk<kType>& other) {
  constexpr int kElements = Chunk<kType>::kElements;
  float x[kElements], y[kElements];
  one.Expand(x);
  other.Expand(y);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == ElementType::kF32) {
      words[i] = __float_as_uint(__fadd_rn(x[i], y[i]));
    } else {
      words[i] =
          PackNumbers<kType>(__fadd_rn(x[2 * i], y[2 * i]), __fadd_rn(x[2 * i + 1], y[2 * i + 1]));
    }
  }
  return {make_uint4(words[0], words[1], words[2], words[3])};
}

// `row_threads` a row, a power of two from 32 on; several rows in a CTA that has more.
template <ElementType kFrom, ElementType kTo, int kLoads>
__global__ void __launch_bounds__(kMostThreads)
    NormalizeRows(const __grid_constant__ NormalizeArgs args, int row_threads_log2,
                  float reciprocal_n) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  constexpr int kLanesPerBlock = kQuantBlock / kElements;
  __shared__ float parts[2][32];
  BeginInTurn(args.independent);
  const int row_threads = 1 << row_threads_log2;
  RowSums sums(parts, row_threads / 32);
  const int at = static_cast<int>(threadIdx.x) & (row_threads - 1);
  const int rows_of_cta = static_cast<int>(blockDim.x) >> row_threads_log2;
  const int n = static_cast<int>(args.n), rows = static_cast<int>(args.rows);
  for (int64_t batch = blockIdx.y; batch < args.batch; batch += gridDim.y) {
    // Every thread goes as many rounds as the first of its CTA: all take part in the sums.
    for (int first = static_cast<int>(blockIdx.x) * rows_of_cta; first < rows;
         first += static_cast<int>(gridDim.x) * rows_of_cta) {
      const int row = first + (static_cast<int>(threadIdx.x) >> row_threads_log2);
      const bool valid = row < rows;
      const int64_t src = batch * args.src_batch + row * args.src_row;
      Chunk<kFrom> chunks[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int col = (i * row_threads + at) * kElements;
        chunks[i] = LoadChunk<kFrom>(args.src, src + col, valid && col < n);
      }
      if (args.addend != nullptr) {
        const int64_t addend = batch * args.addend_batch + row * args.addend_row;
        Chunk<kFrom> added[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int col = (i * row_threads + at) * kElements;
          added[i] = LoadChunk<kFrom>(args.addend, addend + col, valid && col < n);
        }
        char* const sum = static_cast<char*>(args.sum) +
                          (batch * args.sum_batch + row * args.sum_row) * ElementBytes(kFrom);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int col = (i * row_threads + at) * kElements;
          chunks[i] = SumOf(chunks[i], added[i]);
          if (args.sum != nullptr && valid && col < n) {
            *reinterpret_cast<uint4*>(sum + col * ElementBytes(kFrom)) = chunks[i].raw;
          }
        }
      }
      float mean = 0.0f;
      if (args.centered) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          float x[kElements];
          chunks[i].Expand(x);
#pragma unroll
          for (int j = 0; j < kElements; ++j) sum = __fadd_rn(sum, x[j]);
        }
        mean = __fmul_rn(sums.Of(sum), reciprocal_n);
      }
      float squares = 0.0f;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        // What lies behind n is no part of the row, though it is 0.
        if ((i * row_threads + at) * kElements >= n) continue;
        float x[kElements];
        chunks[i].Expand(x);
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          const float apart = __fsub_rn(x[j], mean);
          squares = __fmaf_rn(apart, apart, squares);
        }
      }
      const float factor = FactorOf(sums.Of(squares), reciprocal_n, args.epsilon);
      char* const dst = static_cast<char*>(args.dst) +
                        (batch * args.dst_batch + row * args.dst_row) * ElementBytes(kTo);
      float* const scales = args.scales + batch * args.scales_batch + row * args.scales_row;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int col = (i * row_threads + at) * kElements;
        const bool there = valid && col < n;
        float y[kElements];
        chunks[i].Expand(y);
#pragma unroll
        for (int j = 0; j < kElements; ++j) y[j] = __fmul_rn(__fsub_rn(y[j], mean), factor);
        if (there && args.weight != nullptr) {
          float weight[kElements];
          LoadVector(args.weight, col, weight);
#pragma unroll
          for (int j = 0; j < kElements; ++j) y[j] = __fmul_rn(y[j], weight[j]);
        }
        if (there && args.bias != nullptr) {
          float bias[kElements];
          LoadVector(args.bias, col, bias);
#pragma unroll
          for (int j = 0; j < kElements; ++j) y[j] = __fadd_rn(y[j], bias[j]);
        }
        if constexpr (kTo == ElementType::kE4M3) {
          float amax = 0.0f;
#pragma unroll
          for (int j = 0; j < kElements; ++j) amax = AddMagnitude<false>(amax, y[j]);
          if (!there) amax = 0.0f;  // of the same block as columns that are
          const float scale = ScaleOf<false>(MaxOverLanes<kLanesPerBlock>(amax));
          if (!there) continue;
          if (threadIdx.x % kLanesPerBlock == 0)
            scales[col / kQuantBlock * args.scales_block] = scale;
          StoreQuantised<kElements>(dst + col, y, MakeScaleDivisor(scale));
        } else if (there) {
          StoreRounded<kTo, kElements>(dst + col * ElementBytes(kTo), y);
        }
      }
    }
  }
  EndInTurn(args.independent);
}

// x of any layout.
struct AnyRow {
  const NormalizeArgs& args;
  int64_t src, addend, sum;

  __device__ __forceinline__ AnyRow(const NormalizeArgs& of, int64_t batch, int64_t row)
      : args(of),
        src(batch * of.src_batch + row * of.src_row),
        addend(batch * of.addend_batch + row * of.addend_row),
        sum(batch * of.sum_batch + row * of.sum_row) {}

  __device__ __forceinline__ uint32_t Code(int64_t col) const {
    const int bytes = ElementBytes(args.src_type);
    const uint32_t code = LoadCode(args.src, src + col * args.src_col, bytes);
    if (args.addend == nullptr) return code;
    const uint32_t other = LoadCode(args.addend, addend + col * args.addend_col, bytes);
    return FromF32(args.src_type,
                   __fadd_rn(ToF32(args.src_type, code), ToF32(args.src_type, other)));
  }

  __device__ __forceinline__ float Load(int64_t col) const {
    return ToF32(args.src_type, Code(col));
  }

  // For the last time: the sum may be src or the addend.
  __device__ __forceinline__ float LoadAndKeep(int64_t col) const {
    const uint32_t code = Code(col);
    if (args.sum != nullptr) {
      StoreCode(args.sum, sum + col * args.sum_col, ElementBytes(args.src_type), code);
    }
    return ToF32(args.src_type, code);
  }
};

// Any strides, extents and alignment: a CTA for a row, and in the end a warp for 128 of it.
__global__ void __launch_bounds__(kAnyThreads)
    NormalizeAny(const __grid_constant__ NormalizeArgs args, float reciprocal_n) {
  constexpr int kPerLane = kQuantBlock / 32;  // elements, 32 columns apart
  __shared__ float parts[2][32];
  BeginInTurn(args.independent);
  RowSums sums(parts, kAnyThreads / 32);
  const int lane = threadIdx.x % 32;
  const bool quantised = args.scales != nullptr;
  for (int64_t line = blockIdx.x; line < args.batch * args.rows; line += gridDim.x) {
    const int64_t batch = line / args.rows, row = line - batch * args.rows;
    const AnyRow x(args, batch, row);
    const int64_t dst = batch * args.dst_batch + row * args.dst_row;
    float mean = 0.0f;
    if (args.centered) {
      float sum = 0.0f;
      for (int64_t col = threadIdx.x; col < args.n; col += kAnyThreads) {
        sum = __fadd_rn(sum, x.Load(col));
      }
      mean = __fmul_rn(sums.Of(sum), reciprocal_n);
    }
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < args.n; col += kAnyThreads) {
      const float apart = __fsub_rn(x.Load(col), mean);
      squares = __fmaf_rn(apart, apart, squares);
    }
    const float factor = FactorOf(sums.Of(squares), reciprocal_n, args.epsilon);
    for (int64_t begin = threadIdx.x / 32 * kQuantBlock; begin < args.n;
         begin += kAnyThreads / 32 * kQuantBlock) {
      float y[kPerLane] = {}, amax = 0.0f;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int64_t col = begin + j * 32 + lane;
        if (col >= args.n) continue;
        y[j] = __fmul_rn(__fsub_rn(x.LoadAndKeep(col), mean), factor);
        if (args.weight != nullptr) y[j] = __fmul_rn(y[j], args.weight[col * args.weight_stride]);
        if (args.bias != nullptr) y[j] = __fadd_rn(y[j], args.bias[col * args.bias_stride]);
        amax = AddMagnitude<false>(amax, y[j]);
      }
      float scale = 1.0f;
      if (quantised) {
        scale = ScaleOf<false>(MaxOverLanes<32>(amax));
        if (lane == 0) {
          args.scales[batch * args.scales_batch + row * args.scales_row +
                      begin / kQuantBlock * args.scales_block] = scale;
        }
      }
      const ScaleDivisor divisor = MakeScaleDivisor(scale);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int64_t col = begin + j * 32 + lane;
        if (col >= args.n) continue;
        const uint32_t code =
            quantised ? QuantizeOne<false>(y[j], divisor) : FromF32(args.dst_type, y[j]);
        StoreCode(args.dst, dst + col * args.dst_col, ElementBytes(args.dst_type), code);
      }
    }
  }
  EndInTurn(args.independent);
}

int Log2Up(int64_t value) {
  int log2 = 0;
  while (int64_t{1} << log2 < value) ++log2;
  return log2;
}

template <ElementType kFrom, ElementType kTo>
cudaError_t LaunchFast(const NormalizeArgs& args, cudaStream_t stream) {
  const int64_t chunks = CeilDiv(args.n, Chunk<kFrom>::kElements);
  const int64_t lines = args.batch * args.rows;
  // One load a thread where few rows are all there is; else as many as keep a row in few warps.
  const bool spread = lines <= kFewRows && chunks <= kMostThreads;
  const int log2 = std::max(5, Log2Up(spread ? chunks : CeilDiv(chunks, kMostLoads)));
  const int threads = std::max(kLeastThreads, 1 << log2);
  const int64_t ctas = CeilDiv(kThreadsAtOnce, threads * args.batch);
  const dim3 grid = GridOf(std::min(CeilDiv(args.rows, threads >> log2), ctas), args.batch);
  const auto kernel = spread ? NormalizeRows<kFrom, kTo, 1> : NormalizeRows<kFrom, kTo, kMostLoads>;
  return LaunchKernel(kernel, grid, threads, args.programmatic, stream, args, log2,
                      1.0f / static_cast<float>(args.n));
}

template <ElementType kFrom>
cudaError_t LaunchFast(const NormalizeArgs& args, cudaStream_t stream) {
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

bool IsAligned(const void* at, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;  // of null, too
}

// Whether a row is whole chunks of 16 bytes, as many as its threads keep.
bool IsFast(const NormalizeArgs& args) {
  const int64_t elements = 16 / ElementBytes(args.src_type);
  const int64_t dst_bytes = elements * ElementBytes(args.dst_type);
  for (int64_t stride : {args.src_row, args.src_batch, args.addend_row, args.addend_batch,
                         args.sum_row, args.sum_batch, args.dst_row, args.dst_batch, args.n}) {
    if (stride % elements != 0) return false;
  }
  return args.src_col == 1 && args.addend_col == 1 && args.sum_col == 1 && args.dst_col == 1 &&
         args.weight_stride == 1 && args.bias_stride == 1 && args.rows < kMostRows &&
         args.n <= elements * kMostLoads * kMostThreads && IsAligned(args.src, 16) &&
         IsAligned(args.addend, 16) && IsAligned(args.sum, 16) &&
         IsAligned(args.dst, std::min<int64_t>(dst_bytes, 16)) && IsAligned(args.weight, 16) &&
         IsAligned(args.bias, 16);
}

}  // namespace

cudaError_t LaunchNormalize(const NormalizeArgs& args, cudaStream_t stream) {
  const bool quantised = args.dst_type == ElementType::kE4M3;
  if (args.batch < 0 || args.rows < 0 || args.n < 0 || ElementBytes(args.src_type) == 1 ||
      (ElementBytes(args.dst_type) == 1 && !quantised) || quantised != (args.scales != nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0 || args.rows == 0 || args.n == 0) return cudaSuccess;
  if (!IsFast(args)) {
    return LaunchKernel(NormalizeAny, GridOf(args.batch * args.rows), kAnyThreads,
                        args.programmatic, stream, args, 1.0f / static_cast<float>(args.n));
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
