// CpuProgram: ops with a kernel chosen for each, ready to run on any memory of their sizes.

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/selector.h"

namespace gemmd::kernels::cpu {

// The kernels of a device: matmul's pool, and one kernel for each other op.
struct Pool {
  std::vector<PoolEntry> matmul;
  // By Op's index, matmul's empty. Empty too when disabled: programs with that op do not compile.
  std::vector<std::string_view> others;
  Machine machine;
};

// Immutable after Compile; outlived by the Pool whose names its steps point at.
class CpuProgram final : public Program {
 public:
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops,
                                                                const Pool& pool);

  absl::Span<const Step> steps() const override { return steps_; }
  double estimated_seconds() const override { return estimated_seconds_; }

  // INVALID_ARGUMENT when the bindings do not have what the ops name: a caller's bug, but memory
  // must not pay for it.
  absl::Status CheckBindings(const Bindings& bindings) const;

  const Op& op(size_t index) const { return tasks_[index].op; }
  // Runs op `index` to its end, here and on the context's workers.
  void RunStep(size_t index, const RunContext& context) const;

 private:
  struct Task {
    Op op;
    MatmulProblem problem;                 // of a matmul
    const MatmulKernel* kernel = nullptr;  // of a matmul
  };
  struct IoNeed {
    int index;
    size_t bytes;
  };

  std::vector<Task> tasks_;
  std::vector<Step> steps_;
  double estimated_seconds_ = 0;
  size_t slots_needed_ = 0;
  std::vector<IoNeed> inputs_needed_;
  std::vector<IoNeed> outputs_needed_;
};

}  // namespace gemmd::kernels::cpu
