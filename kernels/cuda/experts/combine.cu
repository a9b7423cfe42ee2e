// Weighted sums of rows. Dense rows in 16-byte aligned memory a thread for 16 bytes of a token, of
// few rows a token several at once (combine_few.cu), of many tokens by the copy engine
// (combine_rows.cu); any others element by element.

#include "kernels/cuda/experts/combine.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize_chunk.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  // rows whose loads are under way together

// Rows of src and their weights, from choice `first` of a token on.
struct Choices {
  int64_t places[kAtOnce];  // -1: none
  float weights[kAtOnce];

  __device__ __forceinline__ Choices(const CombineArgs& args, int64_t token, int first,
                                     bool tells) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const bool there = first + j < args.top_k;
      places[j] = there ? PlaceOf(args, token, first + j, tells) : -1;
      const int64_t at = token * args.weights_row + (first + j) * args.weights_col;
      weights[j] = there ? args.weights[at] : 0.0f;
    }
  }
};

template <ElementType kFrom>
__global__ void __launch_bounds__(kThreads)
    CombineChunks(const __grid_constant__ CombineArgs args) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kElements;
  int64_t token = blockIdx.y;
  int first = 0;
  if (!args.numbers_first) ptx::GridDependencyWait();
  Choices choices(args, token, first, col == 0);
  if (args.numbers_first) ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  if (col >= args.n) return;
  float sums[kElements] = {};
  while (true) {
    Chunk<kFrom> chunks[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t place = choices.places[j];
      chunks[j] = LoadChunk<kFrom>(args.src, place * args.src_row + col, place >= 0);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (choices.places[j] < 0) continue;
      float x[kElements];
      chunks[j].Expand(x);
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[i] = __fmaf_rn(choices.weights[j], x[i], sums[i]);
    }
    first += kAtOnce;
    if (first >= args.top_k) {
      StoreSums(args, token * args.dst_row + col, sums);
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[i] = 0.0f;
      first = 0;
      token += gridDim.y;
      if (token >= args.tokens) return;
    }
    choices = Choices(args, token, first, col == 0);
  }
}

__global__ void __launch_bounds__(kThreads)
    CombineElements(const __grid_constant__ CombineArgs args) {
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= args.n) return;
  for (int64_t token = blockIdx.y; token < args.tokens; token += gridDim.y) {
    float sum = 0.0f;
    for (int j = 0; j < args.top_k; ++j) {
      const int64_t place = PlaceOf(args, token, j, col == 0);
      if (place < 0) continue;
      const uint32_t code = LoadCode(args.src, place * args.src_row + col * args.src_col,
                                     ElementBytes(args.src_type));
      sum = __fmaf_rn(args.weights[token * args.weights_row + j * args.weights_col],
                      ToF32(args.src_type, code), sum);
    }
    StoreCode(args.dst, token * args.dst_row + col * args.dst_col, ElementBytes(args.dst_type),
              FromF32(args.dst_type, sum));
  }
}

bool Chunked(const CombineArgs& args) {
  const int64_t elements = 16 / ElementBytes(args.src_type);
  const int64_t dst_bytes = elements * ElementBytes(args.dst_type);
  const auto divides = [elements](int64_t value) { return value % elements == 0; };
  return args.src_col == 1 && args.dst_col == 1 && divides(args.n) && divides(args.src_row) &&
         divides(args.dst_row) && reinterpret_cast<uintptr_t>(args.src) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.dst) % (dst_bytes < 16 ? 8 : 16) == 0;
}

}  // namespace

cudaError_t LaunchCombine(const CombineArgs& args, cudaStream_t stream) {
  if (args.fault == nullptr) return cudaErrorInvalidValue;
  if (args.tokens <= 0 || args.n <= 0) return cudaSuccess;
  if (!Chunked(args)) {
    return LaunchKernel(CombineElements, GridOf(CeilDiv(args.n, kThreads), args.tokens), kThreads,
                        args.programmatic, stream, args);
  }
  if (TakesCombineFew(args)) return LaunchCombineFew(args, stream);
  if (TakesCombineRows(args)) return LaunchCombineRows(args, stream);
  const int64_t elements = 16 / ElementBytes(args.src_type);
  const dim3 grid = GridOf(CeilDiv(args.n, kThreads * elements), args.tokens);
  const auto kernel = args.src_type == ElementType::kF32    ? CombineChunks<ElementType::kF32>
                      : args.src_type == ElementType::kBF16 ? CombineChunks<ElementType::kBF16>
                                                            : CombineChunks<ElementType::kF16>;
  return LaunchKernel(kernel, grid, kThreads, args.programmatic, stream, args);
}

}  // namespace gemmd::kernels::cuda
