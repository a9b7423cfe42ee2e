// Weighted sums of few rows each, such as a split weight's: of two rows a CTA of combine.cu has a
// quarter of its loads under way, and a stage of combine_rows.cu a quarter of its bytes. Here a
// thread has the same 16 bytes of several tokens' rows at once.

#include "kernels/cuda/experts/combine.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 4;  // of a thread, under way together

// Thread i has units i, i + kThreads, .. of those of its CTA; a row of dst has `units` of them.
template <ElementType kFrom, int kRows>
__global__ void __launch_bounds__(kThreads)
    CombineFew(const __grid_constant__ CombineArgs args, uint32_t units) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  constexpr int kUnits = kLoads / kRows;
  const uint32_t all = static_cast<uint32_t>(args.tokens) * units;
  const uint32_t first = blockIdx.x * (kThreads * kUnits) + threadIdx.x;
  uint32_t token[kUnits], col[kUnits];
  int64_t places[kUnits][kRows];  // -1: none
  float weights[kUnits][kRows];
  if (!args.numbers_first) ptx::GridDependencyWait();
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const uint32_t unit = first + i * kThreads;
    token[i] = unit / units;
    col[i] = (unit - token[i] * units) * kElements;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const bool there = unit < all && j < args.top_k;
      places[i][j] = there ? PlaceOf(args, token[i], j, col[i] == 0) : -1;
      const int64_t at = token[i] * args.weights_row + j * args.weights_col;
      weights[i][j] = there ? args.weights[at] : 0.0f;
    }
  }
  if (args.numbers_first) ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  Chunk<kFrom> chunks[kUnits][kRows];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int64_t place = places[i][j];
      chunks[i][j] = LoadChunk<kFrom>(args.src, place * args.src_row + col[i], place >= 0);
    }
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (first + i * kThreads >= all) return;
    float sums[kElements] = {};
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (places[i][j] < 0) continue;
      float x[kElements];
      chunks[i][j].Expand(x);
#pragma unroll
      for (int e = 0; e < kElements; ++e) sums[e] = __fmaf_rn(weights[i][j], x[e], sums[e]);
    }
    StoreSums(args, token[i] * args.dst_row + col[i], sums);
  }
}

int64_t UnitsOf(const CombineArgs& args) { return args.n * ElementBytes(args.src_type) / 16; }

template <ElementType kFrom, int kRows>
cudaError_t LaunchOf(const CombineArgs& args, cudaStream_t stream) {
  const int64_t units = UnitsOf(args);
  const dim3 grid = GridOf(CeilDiv(args.tokens * units, kThreads * (kLoads / kRows)));
  return LaunchKernel(CombineFew<kFrom, kRows>, grid, kThreads, args.programmatic, stream, args,
                      static_cast<uint32_t>(units));
}

template <ElementType kFrom>
cudaError_t LaunchOf(const CombineArgs& args, cudaStream_t stream) {
  return args.top_k <= 2 ? LaunchOf<kFrom, 2>(args, stream) : LaunchOf<kFrom, 4>(args, stream);
}

}  // namespace

bool TakesCombineFew(const CombineArgs& args) {
  return args.top_k <= kLoads && args.tokens * UnitsOf(args) <= INT32_MAX;
}

cudaError_t LaunchCombineFew(const CombineArgs& args, cudaStream_t stream) {
  return BySourceType(args, [&]<ElementType kFrom>() { return LaunchOf<kFrom>(args, stream); });
}

}  // namespace gemmd::kernels::cuda
