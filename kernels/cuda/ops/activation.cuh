// Activations of one FP32 number, by two approximations of the special function unit each: about as
// many as memory leaves time for. The formulas and their accuracy are Activation's (kernels/op.h).
//
// Every operation's rounding is spelled out: the compiler would fuse some of them in one kernel and
// not in another, and results of two kernels that promise the same bits would differ.

#pragma once

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ptx/convert.cuh"

namespace gemmd::kernels::cuda {

// PTX ISA 9.7.3.22, ex2, and 9.7.3.13, rcp; subnormal results are 0. Not in ptx/, whose contents
// the kernels of the tuning tables are compiled from: none of those has a use for them.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The smaller of two floats; NaN if either is.
__device__ __forceinline__ float MinNaN(float x, float y) { return -ptx::MaxNaN(-x, -y); }

inline constexpr float kMinusLog2E = -1.44269504f;

// x / (1 + 2^t). x is finite below, so that an infinite power gives -0.
__device__ __forceinline__ float OverOnePlusExp2(float x, float t) {
  return __fmul_rn(x, Reciprocal(__fadd_rn(1.0f, Exp2(t))));
}

__device__ __forceinline__ float Silu(float x, float alpha) {
  return OverOnePlusExp2(x, __fmul_rn(__fmul_rn(alpha, kMinusLog2E), x));
}

// tanh(u) = 2 sigmoid(2u) - 1.
inline constexpr float kTanhLinear = 1.59576912f * kMinusLog2E;  // 2 sqrt(2/pi), of the power of 2
inline constexpr float kTanhCubic = kTanhLinear * 0.044715f;
__device__ __forceinline__ float GeluTanh(float x) {
  return OverOnePlusExp2(x, __fmul_rn(x, __fmaf_rn(__fmul_rn(x, x), kTanhCubic, kTanhLinear)));
}

// SiLU or tanh-GELU, with the same bits as above, by one code for both: x * (cubic * x^2 + linear)
// is the power of 2, and SiLU's cubic is 0.
struct SigmoidLike {
  float linear, cubic;

  __device__ __forceinline__ explicit SigmoidLike(ActivationType type) {
    const bool gelu = type == ActivationType::kGeluTanh;
    linear = gelu ? kTanhLinear : kMinusLog2E;
    cubic = gelu ? kTanhCubic : 0.0f;
  }
  __device__ __forceinline__ float Activated(float x) const {
    constexpr float kMost = 3.402823466e38f;
    const float finite_below = ptx::MaxNaN(x, -kMost);
    // An infinite square would make NaN of a cubic of 0.
    const float square = fminf(__fmul_rn(finite_below, finite_below), kMost);
    const float power = __fmul_rn(finite_below, __fmaf_rn(square, cubic, linear));
    return OverOnePlusExp2(finite_below, power);
  }
};

// max(x, 0) less |x| * erfc(t) / 2, t = |x| / sqrt(2): nothing cancels where x is negative. erfc(t)
// = e^(-t^2) * q * P(q), q = 1 / (1 + 0.4 t), as kernels/cpu/ops/activate.cc has it. In u = t *
// sqrt(log2(e)) the power is of 2 without another factor, and P's coefficients have what is left.
__device__ __forceinline__ float GeluErf(float x) {
  // An infinite u would make NaN of what is behind e^(-t^2) = 0.
  const float u = __fmul_rn(MinNaN(fabsf(x), 3.402823466e38f), 0.849321783f);
  const float q = Reciprocal(__fmaf_rn(u, 0.333021849f, 1.0f));
  const float power = Exp2(__fmul_rn(u, -u));
  float p = 0.0235819258f;
  p = __fmaf_rn(p, q, -0.0791412517f);
  p = __fmaf_rn(p, q, 0.0421861298f);
  p = __fmaf_rn(p, q, 0.0602096692f);
  p = __fmaf_rn(p, q, 0.0410403237f);
  p = __fmaf_rn(p, q, 0.116413862f);
  p = __fmaf_rn(p, q, 0.118184432f);
  p = __fmaf_rn(p, q, 0.133403674f);
  p = __fmaf_rn(p, q, 0.132826284f);
  return __fmaf_rn(-__fmul_rn(u, __fmul_rn(q, power)), p, fmaxf(x, 0.0f));
}

// NaN stays NaN.
__device__ __forceinline__ float Relu(float x) { return x < 0.0f ? 0.0f : x; }

template <ActivationType kType>
__device__ __forceinline__ float Activated(float x, float alpha) {
  if constexpr (kType == ActivationType::kNone) return x;
  if constexpr (kType == ActivationType::kRelu) return Relu(x);
  if constexpr (kType == ActivationType::kReluSquared) return __fmul_rn(Relu(x), Relu(x));
  if constexpr (kType == ActivationType::kGeluErf) return GeluErf(x);
  const float finite_below = ptx::MaxNaN(x, -3.402823466e38f);
  if constexpr (kType == ActivationType::kSilu) return Silu(finite_below, alpha);
  return GeluTanh(finite_below);
}

// Calls fn.template operator()<type>(): around a loop, for one branch a run of elements.
template <class Fn>
__device__ __forceinline__ void WithActivation(ActivationType type, Fn fn) {
  switch (type) {
    case ActivationType::kNone:
      return fn.template operator()<ActivationType::kNone>();
    case ActivationType::kRelu:
      return fn.template operator()<ActivationType::kRelu>();
    case ActivationType::kSilu:
      return fn.template operator()<ActivationType::kSilu>();
    case ActivationType::kGeluTanh:
      return fn.template operator()<ActivationType::kGeluTanh>();
    case ActivationType::kGeluErf:
      return fn.template operator()<ActivationType::kGeluErf>();
    case ActivationType::kReluSquared:
      return fn.template operator()<ActivationType::kReluSquared>();
  }
}

__device__ __forceinline__ float Activate(ActivationType type, float x) {
  float y = x;
  WithActivation(type, [&]<ActivationType kType>() { y = Activated<kType>(x, 1.0f); });
  return y;
}

}  // namespace gemmd::kernels::cuda
