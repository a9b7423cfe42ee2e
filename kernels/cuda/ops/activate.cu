#include <type_traits>

#include "kernels/cuda/ops/activate.h"
#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ops/element.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsAtOnce = 2;  // loads under way in a thread

template <ElementType kType, ActivationType kActivation>
__device__ __forceinline__ uint32_t ActivateWord(uint32_t word) {
  if constexpr (kType == ElementType::kF32) {
    return __float_as_uint(Activated<kActivation>(__uint_as_float(word), 1.0f));
  } else {
    const float low = Activated<kActivation>(ToF32(kType, word & 0xffffu), 1.0f);
    const float high = Activated<kActivation>(ToF32(kType, word >> 16), 1.0f);
    return FromF32(kType, low) | FromF32(kType, high) << 16;
  }
}

template <ElementType kType, ActivationType kActivation>
__device__ __forceinline__ uint4 ActivateAll(const uint4& chunk) {
  return {ActivateWord<kType, kActivation>(chunk.x), ActivateWord<kType, kActivation>(chunk.y),
          ActivateWord<kType, kActivation>(chunk.z), ActivateWord<kType, kActivation>(chunk.w)};
}
template <ElementType kType, ActivationType kActivation>
__device__ __forceinline__ uint32_t ActivateAll(uint32_t code) {
  return FromF32(kType, Activated<kActivation>(ToF32(kType, code), 1.0f));
}

// An item is 16 aligned bytes, uint4, or one element, uint16_t or uint32_t.
template <ElementType kType, class Item>
__global__ void __launch_bounds__(kThreads)
    ActivateRows(const __grid_constant__ ActivateArgs args, int64_t items) {
  constexpr int kElements = sizeof(Item) / ElementBytes(kType);
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int64_t col_step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t row_step = static_cast<int64_t>(gridDim.y) * kRowsAtOnce;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t row0 = blockIdx.y * int64_t{kRowsAtOnce}; row0 < args.rows; row0 += row_step) {
      for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items;
           i += col_step) {
        Item* at[kRowsAtOnce];
        Item values[kRowsAtOnce] = {};
#pragma unroll
        for (int r = 0; r < kRowsAtOnce; ++r) {
          const int64_t element =
              batch * args.batch_stride + (row0 + r) * args.row_stride + i * kElements;
          at[r] = reinterpret_cast<Item*>(static_cast<char*>(args.data) +
                                          element * ElementBytes(kType));
          if (row0 + r < args.rows) values[r] = *at[r];
        }
        // One branch for all: elements then go side by side.
        WithActivation(args.activation, [&]<ActivationType kActivation>() {
#pragma unroll
          for (int r = 0; r < kRowsAtOnce; ++r) {
            if (row0 + r < args.rows) {
              *at[r] = static_cast<Item>(ActivateAll<kType, kActivation>(values[r]));
            }
          }
        });
      }
    }
  }
}

template <ElementType kType>
cudaError_t LaunchType(const ActivateArgs& args, cudaStream_t stream) {
  using Element = std::conditional_t<kType == ElementType::kF32, uint32_t, uint16_t>;
  constexpr int64_t kChunk = 16 / sizeof(Element);
  const bool chunked = args.cols % kChunk == 0 &&
                       reinterpret_cast<uintptr_t>(args.data) % 16 == 0 &&
                       (args.rows == 1 || args.row_stride % kChunk == 0) &&
                       (args.batch == 1 || args.batch_stride % kChunk == 0);
  const int64_t items = chunked ? args.cols / kChunk : args.cols;
  const dim3 grid = GridOf(CeilDiv(items, kThreads), CeilDiv(args.rows, kRowsAtOnce), args.batch);
  const auto kernel = chunked ? ActivateRows<kType, uint4> : ActivateRows<kType, Element>;
  return LaunchKernel(kernel, grid, kThreads, args.programmatic, stream, args, items);
}

}  // namespace

cudaError_t LaunchActivate(const ActivateArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  switch (args.type) {
    case ElementType::kF32:
      return LaunchType<ElementType::kF32>(args, stream);
    case ElementType::kBF16:
      return LaunchType<ElementType::kBF16>(args, stream);
    case ElementType::kF16:
      return LaunchType<ElementType::kF16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gemmd::kernels::cuda
