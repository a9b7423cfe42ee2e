// Which of our kernels run on a shape, made callable.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/check.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/bench/options.h"
#include "kernels/bench/result.h"
#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/matmul/selector.h"

namespace gemmd::kernels::bench {

// One of our kernels on the workload's operands.
struct Entry {
  std::string name;
  Binding bind;
  Call call;           // bound where the operands are checked
  Errors errors;       // of its check
  double quick_s = 0;  // of a sweep's first pass
};

struct Choosers {
  const cuda::GemmSelector& tested;  // with the table that was given
  const cuda::GemmSelector& model;   // over the same pool, without one
};

// The chosen kernel first, or the forced one; of a sweep, then every other one that can serve. What
// the TMA families cannot take falls to sm90_any_gemm. Sets the result's kernel, reason and
// model_kernel, and for the fallback its message. UNIMPLEMENTED when the forced kernel cannot
// serve.
absl::StatusOr<std::vector<Entry>> ListEntries(const Options& options, const Choosers& choosers,
                                               const cuda::DeviceTraits& traits,
                                               const Workload& workload, ShapeResult& result);

// A member of a family on such operands. UNIMPLEMENTED when it cannot serve them.
absl::StatusOr<Call> BindMember(const cuda::MatmulFamily& family, int member,
                                const cuda::MatmulArgs& args);

// OK when `name` is a kernel that --kernel takes.
absl::Status CheckKernelName(const std::string& name);

}  // namespace gemmd::kernels::bench
