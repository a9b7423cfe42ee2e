// A Normalize with random operands, and the float64 that its rows, sums and codes are held against.

#pragma once

#include <string>
#include <vector>

#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {

inline constexpr DType kNormalizedTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

enum class Summed {
  kNot,         // no addend
  kUnkept,      // an addend, no sum
  kApart,       // a sum of its own
  kOverSrc,     // the sum is src
  kOverAddend,  // the sum is the addend
};
inline constexpr Summed kSummed[] = {Summed::kUnkept, Summed::kApart, Summed::kOverSrc,
                                     Summed::kOverAddend};

struct NormalizeCase {
  DType from = DType::kBF16;
  DType to = DType::kBF16;
  Dims shape = MakeDims({1, 1});
  bool centered = false;
  bool weight = true;
  bool bias = true;
  Placement src = Placement::kDense;
  Placement dst = Placement::kDense;
  Placement scales = Placement::kDense;
  Placement vectors = Placement::kDense;  // weight and bias
  Summed summed = Summed::kNot;
  Placement addend = Placement::kDense;
  Placement sum = Placement::kDense;  // of one apart
};

NormalizeOp MakeNormalize(Scene& scene, const NormalizeCase& c);

// dst in float64, unrounded, and what sums in FP32 may add to each element.
struct NormalizedRows {
  std::vector<double> x, values, slack;
};

NormalizedRows NormalizeReference(const NormalizeOp& op, const Bindings& bindings);

// Of all slots nothing but the op's results was written.
void CheckWrites(const Scene& scene, const Outcome& outcome, const NormalizeOp& op);

// Any NaN is as good as another; all else to the bit.
void CheckSum(const Outcome& outcome, const TensorRef& sum, const std::vector<double>& expected);

// Runs it and holds each element against float64; nothing else is written.
void CheckNormalize(Scene& scene, Executor& executor, const NormalizeOp& op);

}  // namespace gemmd::kernels::contract
