// F16Workload: FP16 operands of one shape, and the check of what was made of them or of a part.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/check.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/reference.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/shape.h"
#include "kernels/cuda/sm90/gemm_args.h"

namespace gemmd::kernels::bench {

class F16Workload {
 public:
  // Random normal A and B of `shape` from `seed`.
  absl::Status Prepare(const Shape& shape, uint64_t seed, cudaStream_t stream);

  // The first rows, columns and k's; D is dense. `a` and `b` point to FP16, strides in elements.
  cuda::GemmArgs args(const Shape& part) const;

  // Poisons D, calls, and compares D with float64 and what lies beyond it with the poison.
  absl::StatusOr<Errors> Check(const Shape& part, const Call& call, cudaStream_t stream);

 private:
  struct Counters {
    ErrorSums sums;
    unsigned long long stray_words = 0;
  };
  absl::Status MakeReference(const Shape& part, cudaStream_t stream);

  Shape shape_;
  Shape reference_of_;  // the part that `reference_` holds
  ReferenceRows rows_{};
  DeviceBuffer a_, b_, d_, reference_, counters_;
};

}  // namespace gemmd::kernels::bench
