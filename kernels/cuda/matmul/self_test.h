// Self-test: every kernel that may be chosen multiplies one small problem before the device serves,
// and its result is held against the CPU's. A kernel that does not stand up to that, on this GPU
// with this driver, is kept out of the pool instead of giving wrong results to clients.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/sm90/gemm.h"

namespace gemmd::kernels::cuda {

// The problem of one kind of operands: FP8 with block scales, INT8 with scales by row, or BF16 or
// FP16 without, laid out as the TMA families take it, with edges that fill no tile, and k long
// enough for each of `variants` to divide and still end in the middle of a stage.
class SelfTestProblem {
 public:
  static constexpr int64_t kM = 72;
  static constexpr int64_t kN = 200;
  // Beyond d, so that a store outside of it is seen.
  static constexpr int64_t kGuardBytes = 4096;

  // Of `variants`, those that multiply `mma` count.
  SelfTestProblem(Mma mma, absl::Span<const GemmVariant> variants);

  const MatmulOp& op() const { return op_; }
  // By slot; a type without scales has none in theirs. The last is d's, poisoned: NaNs, and so are
  // the bytes beyond it.
  absl::Span<const std::vector<std::byte>> slots() const { return slots_; }
  static constexpr int kResultSlot = 4;

  // Empty when `result`, the bytes of d's slot after a run, is right; else what is wrong with it.
  std::string Judge(absl::Span<const std::byte> result) const;
  // Turns the sign of the largest element: what no kernel may get past Judge.
  void Spoil(absl::Span<std::byte> result) const;

 private:
  MatmulOp op_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<double> expected_;  // float64, [kM, kN]
  double rms_ = 0;                // of expected_
};

struct SelfTestOptions {
  DeviceTraits device;
  std::vector<std::shared_ptr<const MatmulFamily>> families;
  std::function<bool(const KernelInfo&)> is_off;  // members that are not tested
  std::vector<std::string> spoiled;               // for tests: kernels whose results are made wrong
};

// Names of the kernels that failed, and how. UNAVAILABLE when the device is of no more use: one
// faulted, or did not end within a time in which all of them end many times over; the message names
// it, so that the config can disable it. The device's context exists and its families are prepared.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenKernels(
    const SelfTestOptions& options);

}  // namespace gemmd::kernels::cuda
