// Gated for every stride, alignment and period: elements one by one, a warp for 128 of a row.

#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/ops/gated_math.cuh"
#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize_math.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kPerLane = kQuantBlock / 32;  // elements, 32 columns apart

__device__ __forceinline__ float LoadSource(const GatedArgs& args, int64_t row, int64_t col) {
  const int64_t at = row + col * args.src_col;
  return ToF32(args.src_type, LoadCode(args.src, at, ElementBytes(args.src_type)));
}

__global__ void __launch_bounds__(kThreads)
    GatedBlocks(const __grid_constant__ GatedArgs args, int64_t blocks) {
  RowRange range;
  if (args.range_first) range.Load(args);
  BeginInTurn(args.independent);
  if (!args.range_first) range.Load(args);
  const int lane = threadIdx.x % 32;
  const bool quantised = args.scales != nullptr;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  // Uniform over a warp: all of it reaches each shuffle.
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       i < args.batch * args.rows * blocks; i += step) {
    const int64_t block = i % blocks;
    const int64_t row = i / blocks % args.rows;
    const int64_t batch = i / blocks / args.rows;
    if (!range.Has(row)) continue;
    if (args.owners != nullptr && args.owners[batch * args.rows + row] < 0) continue;
    const int64_t src_row = batch * args.src_batch + row * args.src_row;
    float gate[kPerLane] = {}, up[kPerLane] = {}, y[kPerLane];
    for (int j = 0; j < kPerLane; ++j) {
      const int64_t col = block * kQuantBlock + j * 32 + lane;
      if (col >= args.n) continue;
      // Column c of block b: c of 2b.
      const int64_t at = args.alone ? col : col / args.period * args.period + col;
      gate[j] = LoadSource(args, src_row, at);
      if (!args.alone) up[j] = LoadSource(args, src_row, at + args.period);
    }
    if (args.alone) {
      ActivateGates(args, gate, y);
    } else {
      MultiplyGated(args, gate, up, y);
    }
    float scale = 1.0f;
    if (quantised) {
      float amax = 0.0f;
      for (int j = 0; j < kPerLane; ++j) {
        if (block * kQuantBlock + j * 32 + lane < args.n) amax = AddMagnitude<false>(amax, y[j]);
      }
      scale = ScaleOf<false>(MaxOverLanes<32>(amax));
      if (lane == 0) {
        args.scales[batch * args.scales_batch + row * args.scales_row + block * args.scales_block] =
            scale;
      }
    }
    const auto divisor = MakeScaleDivisor(scale);
    for (int j = 0; j < kPerLane; ++j) {
      const int64_t col = block * kQuantBlock + j * 32 + lane;
      if (col >= args.n) continue;
      const uint32_t code =
          quantised ? QuantizeOne<false>(y[j], divisor) : FromF32(args.dst_type, y[j]);
      StoreCode(args.dst, batch * args.dst_batch + row * args.dst_row + col * args.dst_col,
                ElementBytes(args.dst_type), code);
    }
  }
  EndInTurn(args.independent);
}

}  // namespace

cudaError_t LaunchGatedAny(const GatedArgs& args, cudaStream_t stream) {
  const bool quantised = args.dst_type == ElementType::kE4M3;
  if (args.batch < 0 || args.rows < 0 || args.n < 0 || ElementBytes(args.src_type) == 1 ||
      (ElementBytes(args.dst_type) == 1 && !quantised) || quantised != (args.scales != nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0 || args.rows == 0 || args.n == 0) return cudaSuccess;
  const int64_t blocks = CeilDiv(args.n, kQuantBlock);
  return LaunchKernel(GatedBlocks, GridOf(CeilDiv(args.batch * args.rows * blocks, kWarps)),
                      kThreads, args.programmatic, stream, args, blocks);
}

}  // namespace gemmd::kernels::cuda
