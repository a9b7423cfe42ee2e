// Which gates a matmul's own kernel applies, and from addresses to its launch.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/op.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Empty when the fused kernels write what a gate makes of a product of `n` columns: "d is bf16;
// ...". Of operands it says nothing: WhyNotFp8 does.
std::string WhyNotFused(const Gate& gate, int64_t n, const TensorRef& d);

// The parts of it, without a TensorRef: `period` 0 is n/2.
std::string GateWhyNot(DType d, int64_t n, int64_t period);
std::string AloneWhyNot(DType d, int64_t n);
std::string GateResultWhyNot(const OperandTraits& d);

// A launch and its grid.
struct FusedGate {
  GateLaunch launch;
  int config = 0;
  int ctas = 0;
};
// `args`: the product's, whose d is not looked at; `gated`: where the result goes, and the formula.
// `row_tiles`: as many as there can be, of this config; `matrices`: of b.
absl::StatusOr<FusedGate> PrepareGate(int config, const GemmArgs& args, const GatedArgs& gated,
                                      int64_t matrices, int64_t row_tiles, int sms);
cudaError_t LaunchGate(const FusedGate& gate, bool programmatic, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
