// MatmulProblem: what kernel choice depends on, and nothing else. A value; hashable; the key of the
// tuning table.

#ifndef GEMMD_KERNELS_PROBLEM_H_
#define GEMMD_KERNELS_PROBLEM_H_

#include <cstdint>
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

struct OperandTraits {
  DType dtype = DType::kF32;
  ScaleGranularity granularity = ScaleGranularity::kNone;
  Layout layout = Layout::kKContiguous;
  int64_t leading_stride =
      0;  // elements between consecutive rows (kKContiguous) or k's (kRowsContiguous)
  int alignment_bytes =
      256;  // largest power of two, at most 256, that every row's start is a multiple of
  friend bool operator==(const OperandTraits&, const OperandTraits&) = default;
  template <class H>
  friend H AbslHashValue(H h, const OperandTraits& t) {
    return H::combine(std::move(h), t.dtype, t.granularity, t.layout, t.leading_stride,
                      t.alignment_bytes);
  }
};

struct MatmulProblem {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  OperandTraits a;
  OperandTraits b;
  OperandTraits d;     // granularity unused; rows are m, "k" is n
  bool has_c = false;  // beta != 0
  bool has_bias = false;
  Activation activation = Activation::kNone;

  double flops() const { return 2.0 * batch * m * n * k; }
  double bytes() const;  // operands, scales and result once each
  friend bool operator==(const MatmulProblem&, const MatmulProblem&) = default;
  template <class H>
  friend H AbslHashValue(H h, const MatmulProblem& p) {
    return H::combine(std::move(h), p.batch, p.m, p.n, p.k, p.a, p.b, p.d, p.has_c, p.has_bias,
                      p.activation);
  }
};

// The problem that a validated op poses.
MatmulProblem ProblemOf(const MatmulOp& op);

// "m=64 n=4096 k=7168 a=e4m3/1x128 b=e4m3/128x128 d=bf16"
std::string ToString(const MatmulProblem& problem);

}  // namespace gemmd::kernels

#endif  // GEMMD_KERNELS_PROBLEM_H_
