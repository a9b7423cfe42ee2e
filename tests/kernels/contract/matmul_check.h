// Running a matmul and holding its result against float64.

#pragma once

#include "tests/kernels/contract/scene.h"

namespace gemmd::kernels::contract {

// What a matmul is made of, before it has memory.
struct MatmulCase {
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  int64_t batch = 0;      // 0: rank 2
  bool shared_b = false;  // b of rank 2 under a batch
  DType dtype = DType::kF32;
  DType out = DType::kF32;
  ScaleGranularity a_granularity = ScaleGranularity::kNone;
  ScaleGranularity b_granularity = ScaleGranularity::kNone;
  Placement a = Placement::kDense;
  Placement b = Placement::kDense;
  Placement d = Placement::kDense;
};
std::string ToString(const MatmulCase& c);

// The op with random operands and a poisoned d in `scene`.
MatmulOp MakeMatmul(Scene& scene, const MatmulCase& c);

// Random operands' sums of E4M3 and INT8 pass F16's largest number; E5M2's are at most 1, and would
// fall among its subnormals if they were divided, too.
float AlphaWithin(DType out, DType operand);

// The largest error the contract allows `kernel`, relative to the norm of what is summed. FP8
// tensor cores keep about 14 bits of the sum of a scale block: with FP32 results that shows.
double Bound(const MatmulOp& op, std::string_view kernel);

// ||d - reference|| over the norm of the products and addends without their signs: it differs from
// ||reference|| only where those cancel, as in a 1x1 result near zero, which no kernel can help.
double Error(Scene& scene, const Outcome& outcome, const MatmulOp& op);

// Runs `op`; d must be within the bound, and nothing but d written. Returns what was left.
Outcome ExpectMatchesReference(Executor& executor, Scene& scene, const MatmulOp& op);

// The whole of it for a case.
void CheckCase(Executor& executor, Scene& scene, const MatmulCase& c);

}  // namespace gemmd::kernels::contract
