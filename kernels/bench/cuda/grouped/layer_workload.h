// A layer of experts as one program of the backend: tokens to their experts, rows gathered and
// quantised, the first matmul with its gate, the second, and the sum by the router's weights.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/grouped/routing.h"

namespace gemmd::kernels::bench {

struct LayerCase {
  int64_t tokens = 0, top_k = 8, experts = 0, hidden = 0, inner = 0;
  Routing routing = Routing::kUniform;
  double wanted_us = 0;     // at most; 0: none
  double wanted_ratio = 0;  // likewise, of the read of the active weights

  int64_t rows() const { return tokens * top_k; }
  double flops() const;
  std::string name() const;
};

class LayerWorkload {
 public:
  absl::Status Prepare(const LayerCase& c, uint64_t seed, cudaStream_t stream);
  std::vector<Op> Ops() const;
  Bindings Memory() const;
  // The result [tokens, hidden], as BF16.
  absl::StatusOr<std::vector<uint16_t>> Result() const;
  // The weights of experts with rows.
  FloorTraffic traffic() const;

 private:
  absl::Status MakeOperands(uint64_t seed, const std::vector<int32_t>& ids, cudaStream_t stream);

  LayerCase case_;
  int64_t active_ = 0;
  // By slot, in the order of the enum in the .cc.
  static constexpr int kSlots = 15;
  DeviceBuffer slots_[kSlots], sink_;
};

}  // namespace gemmd::kernels::bench
