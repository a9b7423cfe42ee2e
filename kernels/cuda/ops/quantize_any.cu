// Quantize for every stride, alignment and granularity: elements one by one, each block read twice.

#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/cuda/ops/quantize_math.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kTensorCtas = 1024;  // of a kernel that walks over a whole matrix

// The elements under one scale, and the threads that share them out: `lanes` along k, the rest
// along the rows.
struct Region {
  int64_t batch, row0, rows, k0, ks;
  int thread, threads, lanes;
  int64_t shift;  // from a row of dst to its row of src
};

template <class Fn>
__device__ __forceinline__ void ForEachElement(const Region& region, Fn fn) {
  for (int64_t r = region.thread / region.lanes; r < region.rows;
       r += region.threads / region.lanes) {
    for (int64_t c = region.thread % region.lanes; c < region.ks; c += region.lanes) {
      fn(region.row0 + r, region.k0 + c);
    }
  }
}

__device__ __forceinline__ float LoadSource(const QuantizeArgs& args, int64_t batch, int64_t row,
                                            int64_t k) {
  const int64_t at = batch * args.src_batch + row * args.src_row + k * args.src_k;
  return ToF32(args.src_type, LoadCode(args.src, at, ElementBytes(args.src_type)));
}

// E5M2: of the finite elements, as I8; what is not finite stays what it is.
template <ElementType kTo>
__device__ __forceinline__ float ScaleTo(float amax) {
  if constexpr (kTo != ElementType::kE5M2) return ScaleOf<kTo == ElementType::kI8>(amax);
  return amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, 57344.0f), 0x1p-126f);
}
template <ElementType kTo>
__device__ __forceinline__ uint32_t CodeOf(float x, const ScaleDivisor& d) {
  if constexpr (kTo != ElementType::kE5M2) return QuantizeOne<kTo == ElementType::kI8>(x, d);
  return F32ToE5m2(fabsf(x) < kInf ? Divide(x, d) : x);
}

template <ElementType kTo>
__device__ float PartialMax(const QuantizeArgs& args, const Region& region) {
  float amax = 0.0f;
  ForEachElement(region, [&](int64_t row, int64_t k) {
    amax = AddMagnitude<kTo != ElementType::kE4M3>(
        amax, LoadSource(args, region.batch, row + region.shift, k));
  });
  return amax;
}

template <ElementType kTo>
__device__ void StoreRegion(const QuantizeArgs& args, const Region& region, float scale) {
  const ScaleDivisor divisor = MakeScaleDivisor(scale);
  ForEachElement(region, [&](int64_t row, int64_t k) {
    const uint32_t code =
        CodeOf<kTo>(LoadSource(args, region.batch, row + region.shift, k), divisor);
    const int64_t at = region.batch * args.dst_batch + row * args.dst_row + k * args.dst_k;
    static_cast<uint8_t*>(args.dst)[at] = static_cast<uint8_t>(code);
  });
}

// The scales are a [batch, row_groups, k_groups] array of regions, group_rows x group_k each.
struct Groups {
  int64_t row_groups, k_groups, group_rows, group_k;
};

// A region is one warp's or one CTA's; `lanes` of its threads lie along k.
template <ElementType kTo, bool kWholeCta>
__global__ void __launch_bounds__(kThreads)
    QuantizeRegions(const __grid_constant__ QuantizeArgs args, Groups groups, int lanes) {
  __shared__ float warp_max[kWarps];
  BeginInTurn(args.independent);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t per_cta = kWholeCta ? 1 : kWarps;
  const int64_t count = args.batch * groups.row_groups * groups.k_groups;
  // Uniform over the threads that share a region: all of them reach each barrier and shuffle.
  for (int64_t i = blockIdx.x * per_cta + (kWholeCta ? 0 : warp); i < count;
       i += gridDim.x * per_cta) {
    const int64_t k_group = i % groups.k_groups;
    const int64_t row_group = i / groups.k_groups % groups.row_groups;
    Region region;
    region.batch = i / groups.k_groups / groups.row_groups;
    region.row0 = row_group * groups.group_rows;
    region.rows = min(groups.group_rows, args.rows - region.row0);
    region.k0 = k_group * groups.group_k;
    region.ks = min(groups.group_k, args.k - region.k0);
    region.thread = kWholeCta ? threadIdx.x : lane;
    region.threads = kWholeCta ? kThreads : 32;
    region.lanes = lanes;
    const int64_t source = SourceRow(args, region.row0);
    if (source < 0) continue;
    region.shift = source - region.row0;
    float amax = MaxOverLanes<32>(PartialMax<kTo>(args, region));
    if constexpr (kWholeCta) {
      if (lane == 0) warp_max[warp] = amax;
      __syncthreads();  // every warp's maximum is there
      amax = MaxOverLanes<kWarps>(warp_max[lane % kWarps]);
      __syncthreads();  // and has been read, before the next region's overwrites it
    }
    const float scale = ScaleTo<kTo>(amax);
    if (region.thread == 0) {
      args.scales[region.batch * args.scales_batch + row_group * args.scales_row +
                  k_group * args.scales_k] = scale;
    }
    StoreRegion<kTo>(args, region, scale);
  }
  EndInTurn(args.independent);
}

// One scale for a matrix takes four kernels. The scale's own place holds the maximum until the
// third turns it into the scale: magnitudes order like their bits, NaN above infinity above the
// rest.
__global__ void __launch_bounds__(kThreads) ClearScales(const __grid_constant__ QuantizeArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.batch;
       i += step) {
    args.scales[i * args.scales_batch] = 0.0f;
  }
}

// Rows of one batch item that a warp takes: every (warps of the grid)-th.
__device__ __forceinline__ Region WarpRow(const QuantizeArgs& args, int64_t batch, int64_t row) {
  return {batch, row, 1, 0, args.k, static_cast<int>(threadIdx.x % 32), 32, 32, 0};
}

template <ElementType kTo>
__global__ void __launch_bounds__(kThreads) MaxOfTensor(const __grid_constant__ QuantizeArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t batch = blockIdx.y; batch < args.batch; batch += gridDim.y) {
    float amax = 0.0f;
    for (int64_t row = first; row < args.rows; row += step) {
      amax = ptx::MaxNaN(amax, PartialMax<kTo>(args, WarpRow(args, batch, row)));
    }
    amax = MaxOverLanes<32>(amax);
    if (threadIdx.x % 32 == 0) {
      atomicMax(reinterpret_cast<unsigned*>(args.scales + batch * args.scales_batch),
                __float_as_uint(amax) & 0x7fffffffu);
    }
  }
}

template <ElementType kTo>
__global__ void __launch_bounds__(kThreads)
    ScalesOfMaxima(const __grid_constant__ QuantizeArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.batch;
       i += step) {
    float* scale = args.scales + i * args.scales_batch;
    *scale = ScaleTo<kTo>(*scale);
  }
}

template <ElementType kTo>
__global__ void __launch_bounds__(kThreads)
    QuantizeTensor(const __grid_constant__ QuantizeArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t batch = blockIdx.y; batch < args.batch; batch += gridDim.y) {
    const float scale = args.scales[batch * args.scales_batch];
    for (int64_t row = first; row < args.rows; row += step) {
      StoreRegion<kTo>(args, WarpRow(args, batch, row), scale);
    }
  }
}

template <ElementType kTo>
cudaError_t LaunchTensor(const QuantizeArgs& args, cudaStream_t stream) {
  const dim3 per_batch = GridOf(CeilDiv(args.batch, kThreads));
  const int64_t row_ctas = CeilDiv(args.rows, kWarps);
  const dim3 over_rows = GridOf(row_ctas < kTensorCtas ? row_ctas : kTensorCtas, args.batch);
  const bool empty = args.rows == 0 || args.k == 0;
  cudaError_t error = LaunchKernel(ClearScales, per_batch, kThreads, false, stream, args);
  if (error == cudaSuccess && !empty) {
    error = LaunchKernel(MaxOfTensor<kTo>, over_rows, kThreads, false, stream, args);
  }
  if (error == cudaSuccess) {
    error = LaunchKernel(ScalesOfMaxima<kTo>, per_batch, kThreads, false, stream, args);
  }
  if (error == cudaSuccess && !empty) {
    error = LaunchKernel(QuantizeTensor<kTo>, over_rows, kThreads, false, stream, args);
  }
  return error;
}

template <ElementType kTo>
cudaError_t LaunchAny(const QuantizeArgs& args, cudaStream_t stream) {
  if (args.block == QuantizeBlock::kTensor) return LaunchTensor<kTo>(args, stream);
  Groups groups{args.rows, CeilDiv(args.k, kQuantBlock), 1, kQuantBlock};
  int lanes = 32;
  bool whole_cta = false;
  if (args.block == QuantizeBlock::kRow) {
    groups.k_groups = 1;  // also of a row without elements, whose scale is 1
    groups.group_k = args.k;
    whole_cta = args.k > 1024;
    lanes = whole_cta ? kThreads : 32;
  } else if (args.block == QuantizeBlock::k128x128) {
    groups.row_groups = CeilDiv(args.rows, kQuantBlock);
    groups.group_rows = kQuantBlock;
    whole_cta = true;
    lanes = kQuantBlock;
  }
  const int64_t count = args.batch * groups.row_groups * groups.k_groups;
  if (count == 0) return cudaSuccess;
  if (whole_cta) {
    return LaunchKernel(QuantizeRegions<kTo, true>, GridOf(count), kThreads, args.programmatic,
                        stream, args, groups, lanes);
  }
  return LaunchKernel(QuantizeRegions<kTo, false>, GridOf(CeilDiv(count, kWarps)), kThreads,
                      args.programmatic, stream, args, groups, lanes);
}

}  // namespace

cudaError_t LaunchQuantizeAny(const QuantizeArgs& args, cudaStream_t stream) {
  if (args.batch < 0 || args.rows < 0 || args.k < 0 ||
      static_cast<int>(args.block) > static_cast<int>(QuantizeBlock::k128x128) ||
      ElementBytes(args.src_type) == 1) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0) return cudaSuccess;
  if (args.dst_type == ElementType::kE4M3) return LaunchAny<ElementType::kE4M3>(args, stream);
  if (args.dst_type == ElementType::kE5M2) return LaunchAny<ElementType::kE5M2>(args, stream);
  if (args.dst_type == ElementType::kI8) return LaunchAny<ElementType::kI8>(args, stream);
  return cudaErrorInvalidValue;
}

}  // namespace gemmd::kernels::cuda
