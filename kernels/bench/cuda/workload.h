// Workload: the operands of one shape on the device, in every format that the run compares, at one
// or more places: a kernel's time differs with where they lie, mostly by 1 or 2 %.

#ifndef GEMMD_KERNELS_BENCH_CUDA_WORKLOAD_H_
#define GEMMD_KERNELS_BENCH_CUDA_WORKLOAD_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/shape.h"
#include "kernels/cuda/sm90/gemm_args.h"
#include "kernels/problem.h"

namespace gemmd::kernels::bench {

class Workload {
 public:
  // Fills operands for `shape` from `seed`, on `stream`: random normal, A quantised by 1x128, B by
  // 128x128, amax/448. Padding of scales is NaN. `with_bf16` makes the BF16 peer's operands too.
  // They then lie at places 0 to `places` - 1, at least one, and the first is in use.
  absl::Status Prepare(const Shape& shape, uint64_t seed, bool with_bf16, int places,
                       cudaStream_t stream);

  // What follows is about the operands at `place` of those that Prepare was asked for.
  void Use(int place) { used_ = place; }

  // Fills D and kGuardBytes on either side of it with 0xff: NaN in BF16.
  absl::Status Poison(cudaStream_t stream);

  const Shape& shape() const { return shape_; }
  // E4M3 with block scales. b_scales_ld and a_scales_ld are rounded up to 4 floats.
  cuda::Fp8GemmArgs block_args() const;
  // The same E4M3 bytes; each scale is one float, 1.
  cuda::Fp8GemmArgs tensor_args() const;
  // a and b point to BF16, strides in elements; no scales.
  cuda::Fp8GemmArgs bf16_args() const;
  // What block_args() reads and writes.
  FloorTraffic traffic() const;

  static constexpr int64_t kGuardBytes = 4096;
  uint16_t* d() const { return reinterpret_cast<uint16_t*>(here().d.data() + kGuardBytes); }
  int64_t d_bytes() const { return shape_.m * shape_.n * 2; }

 private:
  struct Place {
    DeviceBuffer a, b, a_scales, b_scales, d, a_bf16, b_bf16;
  };
  absl::Status Reserve(Place& place, bool with_bf16);
  absl::Status Fill(uint64_t seed, bool with_bf16, cudaStream_t stream);
  absl::Status CopyTo(Place& place, bool with_bf16, cudaStream_t stream);
  const Place& here() const { return places_[used_]; }

  Shape shape_;
  std::deque<Place> places_{1};  // they do not move
  int used_ = 0;
  DeviceBuffer one_, sink_;
};

// The call of a kernel on the operands at the place in use.
using Binding = std::function<absl::StatusOr<Call>(const Workload&)>;

// The problem that `args` poses to the selector.
MatmulProblem ProblemOf(const cuda::Fp8GemmArgs& args);

}  // namespace gemmd::kernels::bench

#endif  // GEMMD_KERNELS_BENCH_CUDA_WORKLOAD_H_
