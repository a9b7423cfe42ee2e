// The first matmul of an expert's layer on the device: by itself, with its gate in the same kernel,
// and with the gate behind it.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/cuda/grouped/grouped_op.h"

namespace gemmd::kernels::bench {

enum class GateWay {
  kAlone,  // the product in BF16, no gate
  kFused,
  kApart,
};

class GateWorkload {
 public:
  // Groups of these rows, one behind the other: [rows, k] by [groups, n, k].
  absl::Status Prepare(const std::vector<int64_t>& rows, int64_t n, int64_t k, uint64_t seed,
                       cudaStream_t stream);
  absl::StatusOr<Call> Bind(GateWay way, const cuda::DeviceTraits& device);

  // OK once kFused and kApart have run and left the same values and scales.
  absl::Status Compare(cudaStream_t stream) const;

  // The weights of groups with rows, the rows, and what `way` writes.
  FloorTraffic traffic(GateWay way) const;
  double flops() const;

 private:
  GroupedMatmulOp OpOf(GateWay way) const;
  int64_t h_bytes() const { return total_ * (n_ / 2); }
  int64_t h_scale_bytes() const;

  std::vector<int64_t> rows_;
  int64_t n_ = 0, k_ = 0, total_ = 0;
  DeviceBuffer a_, a_scales_, b_, b_scales_, index_, d_, sink_, fault_;
  DeviceBuffer h_[2], h_scales_[2];  // of kFused and of kApart
  DeviceBuffer scratch_[3];          // by way
};

}  // namespace gemmd::kernels::bench
