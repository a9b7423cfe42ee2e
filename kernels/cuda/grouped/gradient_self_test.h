// Self-test of the kernels of gradients: small k-grouped problems that reach each of them, held
// against float64. One that does not stand up to it is kept out.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// A k-grouped matmul, of FP8 with scales of 1x128 on both sides, and what comes of it: whole blocks
// of k and not, groups without columns, NaN in columns of nobody.
class GradientTrial {
 public:
  // Beyond d, so that a store outside of it is seen.
  static constexpr int64_t kGuardBytes = 4096;

  // `along_rows`: of 16 bits, operands that lie along their rows and not along k.
  GradientTrial(DType a, DType b, DType out, bool along_rows = false);

  const KGroupedMatmulOp& op() const { return op_; }
  // By slot; d's is poisoned: NaNs, and so are the bytes beyond it.
  absl::Span<const std::vector<std::byte>> slots() const { return slots_; }
  int result_slot() const { return op_.d.slot; }

  // Empty when `result`, the bytes of d's slot after a run, is right; else what is wrong with it.
  std::string Judge(absl::Span<const std::byte> result) const;
  // Turns the sign of the largest element: what no kernel may get past Judge.
  void Spoil(absl::Span<std::byte> result) const;

 private:
  KGroupedMatmulOp op_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<double> expected_;  // by element of d
  double rms_ = 0;
};

// Every problem of the self-test: FP8 in any mix, and 16 bits either way.
std::vector<GradientTrial> GradientTrials();

struct GradientSelfTestOptions {
  DeviceTraits device;
  std::vector<std::string> kernels;  // to be tested: GradientName of any type, kAnyKGroupedName
  std::vector<std::string> spoiled;  // for tests: those whose results are made wrong
};

// As FindBrokenKernels: names of the kernels that failed, and how; UNAVAILABLE when the device is
// of no more use.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenGradientKernels(
    const GradientSelfTestOptions& options);

}  // namespace gemmd::kernels::cuda
