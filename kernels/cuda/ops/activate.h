// An activation of a matrix in place: behind a matmul whose kernels do not apply it.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

// [batch, rows, cols] with stride 1 along the columns; other strides in elements, such that no two
// elements share memory.
struct ActivateArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  void* data = nullptr;
  ElementType type = ElementType::kBF16;  // kF32, kBF16 or kF16
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  ActivationType activation = ActivationType::kSilu;
  bool programmatic = false;  // the launch may overlap the previous kernel's end
};

// Queues it on `stream` of the current device. A matrix without elements is success.
cudaError_t LaunchActivate(const ActivateArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
