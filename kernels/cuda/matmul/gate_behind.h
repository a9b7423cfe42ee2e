// A gate behind a product in scratch memory: what the pool does of a matmul with a gate for members
// that apply none.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/matmul/gemm_op.h"

namespace gemmd::kernels::cuda {

inline bool PutsGateBehind(const MatmulFamily& family, const MatmulProblem& problem) {
  return problem.gate_period > 0 && !family.gates();
}

// Behind what the product's kernel takes of the scratch itself.
inline int64_t ProductOffset(int64_t kernel_scratch) { return (kernel_scratch + 255) / 256 * 256; }

inline int64_t ProductBytes(const MatmulProblem& problem) {
  const int64_t size = SizeBytes(ProductOf(problem).d.dtype);
  const double bytes = 1.0 * problem.batch * problem.m * problem.n * size;
  if (bytes > kMaxScratchBytes) return kMaxScratchBytes + 1;
  return problem.batch * problem.m * problem.n * size;
}

// Empty when there is room for the product, or no gate.
inline std::string ApartWhyNot(const MatmulProblem& problem) {
  if (problem.gate_period == 0 || ProductBytes(problem) <= kMaxScratchBytes) return "";
  return absl::StrCat("the product in front of the gate takes more than ", kMaxScratchBytes,
                      " bytes of scratch memory; split it along m");
}

}  // namespace gemmd::kernels::cuda
