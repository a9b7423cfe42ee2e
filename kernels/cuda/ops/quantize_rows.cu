// Quantize with a scale for each row: dense, aligned rows that fit into a CTA's registers, so that
// each element is read once.

#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/cuda/ops/quantize_chunk.cuh"

namespace gemmd::kernels::cuda {
namespace {

// `kWarps` warps share a row, of which each of their lanes holds up to `kLoads` chunks. One warp a
// row: eight of them make a CTA, and none waits for another.
template <ElementType kType, bool kI8, int kWarps, int kLoads>
__global__ void __launch_bounds__(kWarps == 1 ? 256 : kWarps * 32, kWarps == 16  ? 2
                                                                   : kLoads <= 4 ? 5
                                                                                 : 3)
    QuantizeRows(const __grid_constant__ QuantizeArgs args) {
  using C = Chunk<kType>;
  constexpr bool kWarpRows = kWarps == 1;
  constexpr int kRowsAtOnce = kWarpRows ? 256 / 32 : 1, kThreads = kWarps * 32;
  __shared__ float warp_max[kWarps];
  __shared__ int64_t source_row;
  BeginInTurn(args.independent);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int thread = kWarpRows ? lane : threadIdx.x;  // of those that share a row
  for (int64_t batch = blockIdx.y; batch < args.batch; batch += gridDim.y) {
    for (int64_t first = blockIdx.x; first * kRowsAtOnce < args.rows; first += gridDim.x) {
      const int64_t row = first * kRowsAtOnce + (kWarpRows ? warp : 0);
      if (row >= args.rows) break;  // a whole warp that has a row for itself
      int64_t source = row;
      if (args.from != nullptr) {  // read by one for all, since it may change meanwhile
        if constexpr (kWarpRows) {
          if (lane == 0) source = SourceRow(args, row);
          source = __shfl_sync(0xffffffffu, source, 0);
        } else {
          __syncthreads();  // the last one has been read
          if (thread == 0) source_row = SourceRow(args, row);
          __syncthreads();  // and this one is there
          source = source_row;
        }
        if (source < 0) continue;
      }
      const int64_t at = batch * args.src_batch + source * args.src_row;
      C chunks[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int64_t k = static_cast<int64_t>(i * kThreads + thread) * C::kElements;
        chunks[i] = LoadChunk<kType>(args.src, at + k, k < args.k);
      }
      const auto of_row = [&](float amax) {
        amax = MaxOverLanes<32>(amax);
        if constexpr (!kWarpRows) {
          if (lane == 0) warp_max[warp] = amax;
          __syncthreads();  // every warp's maximum is there
          amax = MaxOverLanes<kWarps>(warp_max[lane % kWarps]);
          __syncthreads();  // and has been read, before the next one overwrites it
        }
        return amax;
      };
      float amax = of_row(LargestOfAll(chunks));
      const bool finite = amax < kInf;  // of all who share the row alike
      if (kI8 && !finite) amax = of_row(LargestFinite(chunks));
      const float scale = ScaleOf<kI8>(amax);
      const ScaleDivisor divisor = MakeScaleDivisor(scale);
      if (thread == 0) args.scales[batch * args.scales_batch + row * args.scales_row] = scale;
      uint8_t* const target =
          static_cast<uint8_t*>(args.dst) + batch * args.dst_batch + row * args.dst_row;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int64_t k = static_cast<int64_t>(i * kThreads + thread) * C::kElements;
        if (k >= args.k) break;
        uint32_t codes[C::kCodeWords];
        chunks[i].template Encode<kI8>(divisor, codes, finite);
        StoreCodes(target + k, codes);
      }
    }
  }
  EndInTurn(args.independent);
}

template <ElementType kType, bool kI8>
cudaError_t LaunchRows(const QuantizeArgs& args, cudaStream_t stream) {
  const int64_t chunks = args.k / Chunk<kType>::kElements;
  const auto launch = [&](auto* kernel, int threads, int rows) {
    return LaunchKernel(kernel, GridOf(CeilDiv(args.rows, rows), args.batch), threads,
                        args.programmatic, stream, args);
  };
  if (chunks <= 4 * 32) return launch(QuantizeRows<kType, kI8, 1, 4>, 256, 8);
  if (chunks <= 8 * 32) return launch(QuantizeRows<kType, kI8, 1, 8>, 256, 8);
  if (chunks <= 2 * 256) return launch(QuantizeRows<kType, kI8, 8, 2>, 256, 1);
  if (chunks <= 4 * 256) return launch(QuantizeRows<kType, kI8, 8, 4>, 256, 1);
  if (chunks <= 4 * 512) return launch(QuantizeRows<kType, kI8, 16, 4>, 512, 1);
  return launch(QuantizeRows<kType, kI8, 16, 8>, 512, 1);
}

}  // namespace

cudaError_t LaunchQuantizeRows(const QuantizeArgs& args, cudaStream_t stream) {
  const bool int8 = args.dst_type == ElementType::kI8;
  const auto launch = [&]<ElementType kType>() {
    return int8 ? LaunchRows<kType, true>(args, stream) : LaunchRows<kType, false>(args, stream);
  };
  switch (args.src_type) {
    case ElementType::kF32:
      return launch.template operator()<ElementType::kF32>();
    case ElementType::kBF16:
      return launch.template operator()<ElementType::kBF16>();
    case ElementType::kF16:
      return launch.template operator()<ElementType::kF16>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gemmd::kernels::cuda
