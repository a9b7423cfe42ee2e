// Self-test of the grouped kernels: small problems that reach each of them, in every way that
// groups and matrices are told, held against float64. One that does not stand up to it is kept out.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/grouped_problem.h"
#include "kernels/grouping.h"

namespace gemmd::kernels::cuda {

// A grouped matmul that the TMA kernels serve, and what comes of it.
class GroupedTrial {
 public:
  // Beyond d, so that a store outside of it is seen.
  static constexpr int64_t kGuardBytes = 4096;

  // Groups of these rows, with rows of nobody around them.
  enum class Kind {
    kPlain,  // one tensor of matrices
    kApart,  // each group has a matrix of its own
    kGated,  // a gate, D in E4M3, its scales behind it in its slot
    kGatedApart,
    kAdjusted,   // alpha and ReLU
    kActivated,  // alpha, a bias and SiLU
  };
  enum class Scales {
    kNone,
    kRows,    // one for each row of either side
    kBlocks,  // of 1x128 and 128x128
  };
  GroupedTrial(GroupLayout layout, absl::Span<const int64_t> rows, int64_t n, int64_t k, Kind kind,
               DType operands = DType::kE4M3, Scales scales = Scales::kBlocks,
               DType out = DType::kBF16);

  const GroupedMatmulOp& op() const { return op_; }
  // By slot; d's is poisoned: NaNs, and so are the bytes beyond it.
  absl::Span<const std::vector<std::byte>> slots() const { return slots_; }
  int result_slot() const { return op_.d.slot; }

  // Empty when `result`, the bytes of d's slot after a run, is right; else what is wrong with it.
  std::string Judge(absl::Span<const std::byte> result) const;
  // Turns the sign of the largest element: what no kernel may get past Judge.
  void Spoil(absl::Span<std::byte> result) const;

 private:
  void Fill(absl::Span<const int32_t> numbers);
  void Expect(absl::Span<const GroupRows> groups);
  int64_t ResultBytes() const;  // of d, and of its scales

  GroupedMatmulOp op_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<double> expected_;  // by element of d; NaN: not to be written
  double rms_ = 0;                // of what is to be written
};

// Every problem of the self-test: thin groups and wide ones, empty ones, k of whole blocks and not,
// with a gate and without, and with what a kernel that finishes is for.
std::vector<GroupedTrial> GroupedTrials();

// One of the kernels behind a name, and how that for groups of any size cuts them.
struct GroupedForm {
  RowsKernel rows = RowsKernel::kFew;
  int grain = kGrainThatFills;
};
// All that the kernel of this name multiplies by: each tries every trial that is the name's, and
// that it serves.
std::vector<GroupedForm> FormsOf(std::string_view kernel);
bool Serves(const GroupedForm& form, const GroupedMatmulOp& op);
// What the trial's result slot holds behind one of them.
absl::StatusOr<std::vector<std::byte>> ResultOf(const GroupedTrial& trial,
                                                const std::string& kernel, const GroupedForm& form,
                                                const DeviceTraits& device);

struct GroupedSelfTestOptions {
  DeviceTraits device;
  // To be tested: TmaGroupedName of any type, kAnyGroupedName, kFp8GateName.
  std::vector<std::string> kernels;
  std::vector<std::string> spoiled;  // for tests: those whose results are made wrong
};

// As FindBrokenKernels: names of the kernels that failed, and how; UNAVAILABLE when the device is
// of no more use.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> FindBrokenGroupedKernels(
    const GroupedSelfTestOptions& options);

}  // namespace gemmd::kernels::cuda
