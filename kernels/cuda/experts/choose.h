// A router's choice on the device: ChooseOp (kernels/op.h).

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

// Strides in elements; `chosen` is dense along top_k.
struct ChooseArgs {
  const void* logits = nullptr;                 // [tokens, experts]
  ElementType logits_type = ElementType::kF32;  // kF32, kBF16 or kF16
  int64_t logits_row = 0;
  int64_t logits_col = 1;
  const float* bias = nullptr;  // [experts]; null: none
  int64_t bias_stride = 1;
  int32_t* chosen = nullptr;  // [tokens, top_k]
  int64_t chosen_row = 0;
  float* weights = nullptr;  // [tokens, top_k]
  int64_t weights_row = 0;
  int64_t weights_col = 1;
  int64_t tokens = 0;
  int32_t experts = 0;  // 1 to 512
  int32_t top_k = 0;    // 1 to 32
  bool sigmoid = false;
  bool renormalize = false;
  float scale = 1.0f;
  int32_t groups = 1;      // divides experts
  int32_t top_groups = 1;  // 1 to groups
  bool sums_two = false;   // a group's score is the sum of its two largest
  bool programmatic = false;
};
cudaError_t LaunchChoose(const ChooseArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
