// MatmulProblem: what kernel choice depends on, all of it and nothing else: whoever explains a
// choice and whoever compiles ask the same question. A value; hashable.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/op.h"

namespace gemmd::kernels {

// How an operand [rows, k] lies in memory.
enum class Layout : uint8_t {
  kKContiguous,     // stride 1 along k ("row-major" for A, "NT" for B)
  kRowsContiguous,  // stride 1 along rows
  kStrided,         // neither
};

// How an operand's scales lie: strides in floats. 0: one for all along there.
struct ScaleTraits {
  int64_t batch_stride = 0;
  int64_t row_stride = 0;     // between rows, or blocks of 128 rows
  int64_t k_stride = 0;       // between blocks of 128 along k
  int alignment_bytes = 256;  // of the first, at most 256
  friend bool operator==(const ScaleTraits&, const ScaleTraits&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ScaleTraits& t) {
    return H::combine(std::move(h), t.batch_stride, t.row_stride, t.k_stride, t.alignment_bytes);
  }
};

// Of OperandTraits::batch_stride: one matrix starts where the one before it ends.
inline constexpr int64_t kPacked = -1;

struct OperandTraits {
  DType dtype = DType::kF32;
  ScaleGranularity granularity = ScaleGranularity::kNone;
  Layout layout = Layout::kKContiguous;
  int64_t leading_stride =
      0;  // elements between consecutive rows (kKContiguous) or k's (kRowsContiguous)
  int alignment_bytes =
      256;  // largest power of two, at most 256, that every row's start is a multiple of
  int64_t batch_stride = kPacked;  // elements between the matrices of a batch; 0: they are all one
  // None: it has no scales, or they lie as the device's kernels like them best.
  std::optional<ScaleTraits> scales;
  friend bool operator==(const OperandTraits&, const OperandTraits&) = default;
  template <class H>
  friend H AbslHashValue(H h, const OperandTraits& t) {
    return H::combine(std::move(h), t.dtype, t.granularity, t.layout, t.leading_stride,
                      t.alignment_bytes, t.batch_stride, t.scales.has_value(),
                      t.scales.value_or(ScaleTraits()));
  }
};

struct MatmulProblem {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  OperandTraits a;
  OperandTraits b;
  OperandTraits
      d;  // rows are m, "k" is n, or n/2 with a gate that has ups; has scales if it is E4M3
  bool has_c = false;  // beta != 0
  OperandTraits c;     // as d; of has_c alone
  bool has_bias = false;
  int64_t bias_stride = 1;  // of has_bias alone
  Activation activation = Activation::kNone;
  // Columns of gates that lie side by side, then as many of their ups; half of n where all do. 0:
  // no gate; n, and no ups, where gates are alone.
  int64_t gate_period = 0;
  bool gate_alone = false;
  bool reads_operands = true;  // alpha != 0: else what is in a and b must not show

  double flops() const { return 2.0 * batch * m * n * k; }
  int64_t d_cols() const { return gate_period > 0 && !gate_alone ? n / 2 : n; }
  double bytes() const;  // operands, scales and result once each
  friend bool operator==(const MatmulProblem&, const MatmulProblem&) = default;
  template <class H>
  friend H AbslHashValue(H h, const MatmulProblem& p) {
    return H::combine(std::move(h), p.batch, p.m, p.n, p.k, p.a, p.b, p.d, p.has_c, p.c, p.has_bias,
                      p.bias_stride, p.activation, p.gate_period, p.gate_alone, p.reads_operands);
  }
};

// The problem that a validated op poses.
MatmulProblem ProblemOf(const MatmulOp& op);

// Of a problem whose n is known.
void SetGate(const Gate& gate, MatmulProblem& problem);

// Of one with a gate: its product, dense, in BF16, or in FP32 for an FP32 d.
MatmulProblem ProductOf(const MatmulProblem& problem);

// "m=64 n=4096 k=7168 a=e4m3/1x128 b=e4m3/128x128 d=bf16"
std::string ToString(const MatmulProblem& problem);

}  // namespace gemmd::kernels
