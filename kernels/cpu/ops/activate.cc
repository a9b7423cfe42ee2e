#include "kernels/cpu/ops/activate.h"

#include <bit>
#include <limits>

#include "kernels/cpu/isa.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// e^x: 0 below -87, infinity above 88, a few units in the last place between. e^r by a polynomial
// for |r| <= ln(2)/2 (least largest error, 3e-9 of the result), times a power of two.
GEMMD_ALWAYS_INLINE float Exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // few enough bits that a product with n is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: its last place is 1
  const float rounded = x * kLog2E + kRound;
  const float n = rounded - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 0.00138145868f;
  p = p * r + 0.00836871812f;
  p = p * r + 0.0416683883f;
  p = p * r + 0.166665206f;
  p = p * r + 0.499999934f;
  const float mantissa = (r * r * p + r) + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(rounded) << 23) + 0x3f800000u);
  const float e = mantissa * power;
  // NaN fails both comparisons and has come through the polynomial.
  const float not_huge = x > 88.0f ? kInf : e;
  return x < -87.0f ? 0.0f : not_huge;
}

// x * sigmoid(t). With x finite below, an infinite exponential gives -0 and not infinity over
// itself.
GEMMD_ALWAYS_INLINE float TimesSigmoid(float x, float t) { return x / (1.0f + Exp(-t)); }

GEMMD_ALWAYS_INLINE float GeluTanh(float x) {
  // tanh(u) = 2 sigmoid(2u) - 1.
  constexpr float kTwoSqrtTwoOverPi = 1.59576912f;
  constexpr float kCubic = kTwoSqrtTwoOverPi * 0.044715f;
  return TimesSigmoid(x, x * (kTwoSqrtTwoOverPi + kCubic * (x * x)));
}

// x * (1 + erf(x / sqrt(2))) / 2. Of a negative x it is x * erfc(t) / 2, t = |x| / sqrt(2), so that
// nothing cancels. erfc(t) = e^(-t^2) * q * P(q), q = 1 / (1 + 0.4 t): a polynomial fitted for the
// least largest error, 6e-8 of the result.
GEMMD_ALWAYS_INLINE float GeluErf(float x) {
  constexpr float kSqrtHalf = 0.707106781f;
  const float t = (x < 0 ? -x : x) * kSqrtHalf;
  const float q = 1.0f / (1.0f + 0.4f * t);
  float p = 0.0400572864f;
  p = p * q - 0.134432775f;
  p = p * q + 0.0716591970f;
  p = p * q + 0.102274772f;
  p = p * q + 0.0697128820f;
  p = p * q + 0.197745660f;
  p = p * q + 0.200753226f;
  p = p * q + 0.226605299f;
  p = p * q + 0.225624509f;
  const float tail = 0.5f * (q * p) * Exp(-t * t);
  return x * (x < 0 ? tail : 1.0f - tail);
}

template <Activation kActivation>
GEMMD_ALWAYS_INLINE float One(float x, float alpha) {
  if constexpr (kActivation == Activation::kNone) return x;
  if constexpr (kActivation == Activation::kRelu) return x < 0 ? 0.0f : x;
  if constexpr (kActivation == Activation::kReluSquared) return x < 0 ? 0.0f : x * x;
  const float finite_below = x < kLowest ? kLowest : x;
  if constexpr (kActivation == Activation::kSilu) {
    return TimesSigmoid(finite_below, alpha * finite_below);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return GeluTanh(finite_below);
  } else {
    return GeluErf(finite_below);
  }
}

// Calls fn.template operator()<activation>().
template <class Fn>
GEMMD_ALWAYS_INLINE void WithActivation(Activation activation, Fn fn) {
  switch (activation) {
    case Activation::kNone:
      return fn.template operator()<Activation::kNone>();
    case Activation::kRelu:
      return fn.template operator()<Activation::kRelu>();
    case Activation::kSilu:
      return fn.template operator()<Activation::kSilu>();
    case Activation::kGeluTanh:
      return fn.template operator()<Activation::kGeluTanh>();
    case Activation::kGeluErf:
      return fn.template operator()<Activation::kGeluErf>();
    case Activation::kReluSquared:
      return fn.template operator()<Activation::kReluSquared>();
  }
}

GEMMD_ALWAYS_INLINE void MultiplyRunBody(const GateMath& math, const float* __restrict up,
                                         int64_t n, float* __restrict gate) {
  const float alpha = math.alpha;
  const float limit = math.limit > 0 ? math.limit : kInf;
  const float offset = math.up_offset;
  WithActivation(
      math.activation, [=]<Activation kActivation>() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          const float g = gate[i] > limit ? limit : gate[i];
          const float below = up[i] > limit ? limit : up[i];
          const float u = below < -limit ? -limit : below;
          gate[i] = One<kActivation>(g, alpha) * (u + offset);
        }
      });
}
GEMMD_ISA_CLONES(MultiplyRun, (const GateMath& math, const float* up, int64_t n, float* gate),
                 (math, up, n, gate))

GEMMD_ALWAYS_INLINE void GatesRunBody(const GateMath& math, int64_t n, float* gate) {
  const float alpha = math.alpha;
  const float limit = math.limit > 0 ? math.limit : kInf;
  WithActivation(
      math.activation, [=]<Activation kActivation>() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          gate[i] = One<kActivation>(gate[i] > limit ? limit : gate[i], alpha);
        }
      });
}
GEMMD_ISA_CLONES(GatesRun, (const GateMath& math, int64_t n, float* gate), (math, n, gate))

}  // namespace

void Activate(Activation activation, int64_t n, float* x) {
  GatesRun({.activation = activation}, n, x);
}

void MultiplyGated(const GateMath& math, const float* up, int64_t n, float* gate) {
  MultiplyRun(math, up, n, gate);
}

void ActivateGates(const GateMath& math, int64_t n, float* gate) { GatesRun(math, n, gate); }

}  // namespace gemmd::kernels::cpu
