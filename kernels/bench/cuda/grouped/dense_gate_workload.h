// A dense matmul with a gate, and the same without one, as programs of the backend.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"

namespace gemmd::kernels::bench {

class DenseGateWorkload {
 public:
  absl::Status Prepare(int64_t m, int64_t n, int64_t k, uint64_t seed, cudaStream_t stream);
  // The product in BF16, or with a gate in E4M3.
  std::vector<Op> Ops(bool gate) const;
  Bindings Memory() const;
  // The weights.
  FloorTraffic traffic() const;

 private:
  int64_t m_ = 0, n_ = 0, k_ = 0;
  static constexpr int kSlots = 7;
  DeviceBuffer slots_[kSlots], sink_;
};

}  // namespace gemmd::kernels::bench
