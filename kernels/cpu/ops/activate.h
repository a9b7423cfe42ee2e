// Activations of runs of FP32 numbers, and the product of a gate and its up: vectorised, by one
// exponential each. The formulas are Activation's and GatedOp's (op.h).

#pragma once

#include <cstdint>

#include "kernels/op.h"

namespace gemmd::kernels::cpu {

// x[i] = activation(x[i]).
void Activate(Activation activation, int64_t n, float* x);

// What a GatedOp does to a pair of numbers, or to a gate alone.
struct GateMath {
  Activation activation = Activation::kSilu;
  float alpha = 1.0f;
  float limit = 0.0f;  // 0: none
  float up_offset = 0.0f;
};

// gate[i] = activation(gate[i]) * (up[i] + up_offset), both clamped first. The same bits for the
// same numbers at any i and n.
void MultiplyGated(const GateMath& math, const float* up, int64_t n, float* gate);

// gate[i] = activation(gate[i]), clamped first.
void ActivateGates(const GateMath& math, int64_t n, float* gate);

}  // namespace gemmd::kernels::cpu
