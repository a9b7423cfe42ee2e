// Workload: the operands of one shape on the device, in every format that the run compares, at one
// or more places: a kernel's time differs with where they lie, mostly by 1 or 2 %.

#pragma once

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
#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/ops/element.h"
#include "kernels/cuda/sm90/gemm_args.h"
#include "kernels/problem.h"

namespace gemmd::kernels::bench {

// The problem that `args`, with such operands, pose to the selector.
MatmulProblem ProblemOf(const cuda::GemmArgs& args, DType dtype);
// What a family prepares of them.
cuda::MatmulArgs MatmulArgsOf(const cuda::GemmArgs& args, DType dtype);

class Workload {
 public:
  // `dtype`: of the operands, E4M3, BF16, F16 or I8; those of a byte have scales, of blocks or by
  // row.
  explicit Workload(DType dtype, bool block_scales = true)
      : dtype_(dtype), blocks_(SizeBytes(dtype) == 1 && block_scales) {}

  // Fills operands for `shape` from `seed`, on `stream`: random normal, A quantised by 1x128 and B
  // by 128x128, or both by row: amax/448 of E4M3, amax/127 of I8. Padding of scales is NaN.
  // `with_bf16` makes the BF16 peer's operands beside E4M3's. They then lie at places 0 to `places`
  // - 1, at least one, and the first is in use.
  absl::Status Prepare(const Shape& shape, uint64_t seed, bool with_bf16, int places,
                       cudaStream_t stream);

  // What follows is about the operands at `place` of those that Prepare was asked for.
  void Use(int place) { used_ = place; }

  // Fills D and kGuardBytes on either side of it with 0xff: NaN in BF16.
  absl::Status Poison(cudaStream_t stream);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  cuda::ElementType element() const { return static_cast<cuda::ElementType>(dtype_); }
  // The operands with their scales. Of blocks, a_scales_ld and b_scales_ld are rounded up to 4
  // floats. D is BF16, or FP16 of such operands.
  cuda::GemmArgs operands() const;
  cuda::MatmulArgs args() const { return MatmulArgsOf(operands(), dtype_); }
  // Of I8, with D in 32 bits and no scales: what cuBLASLt multiplies.
  cuda::MatmulArgs integer_args() const;
  // The same E4M3 bytes; each scale is one float, 1.
  cuda::MatmulArgs tensor_args() const;
  // a and b point to BF16, strides in elements; no scales.
  cuda::MatmulArgs bf16_args() const;
  // What operands() read and write.
  FloorTraffic traffic() const;

  static constexpr int64_t kGuardBytes = 4096;
  uint16_t* d() const { return reinterpret_cast<uint16_t*>(here().d.data() + kGuardBytes); }
  int64_t d_bytes() const { return shape_.m * shape_.n * 2; }

 private:
  struct Place {
    DeviceBuffer a, b, a_scales, b_scales, d, a_bf16, b_bf16, d_s32;
  };
  cuda::GemmArgs plain() const;  // one float, 1, for all scales
  absl::Status Reserve(Place& place, bool with_bf16);
  absl::Status Fill(uint64_t seed, bool with_bf16, cudaStream_t stream);
  cudaError_t FillOperands(uint64_t seed, cudaStream_t stream);
  absl::Status CopyTo(Place& place, bool with_bf16, cudaStream_t stream);
  const Place& here() const { return places_[used_]; }

  int64_t a_bytes() const { return shape_.m * shape_.k * SizeBytes(dtype_); }
  int64_t b_bytes() const { return shape_.n * shape_.k * SizeBytes(dtype_); }
  bool by_row() const { return SizeBytes(dtype_) == 1 && !blocks_; }
  int64_t a_scale_floats() const;
  int64_t b_scale_floats() const;

  const DType dtype_;
  const bool blocks_;  // scales of 1x128 and 128x128
  Shape shape_;
  std::deque<Place> places_{1};  // they do not move
  int used_ = 0;
  DeviceBuffer one_, sink_;
};

// The call of a kernel on the operands at the place in use.
using Binding = std::function<absl::StatusOr<Call>(const Workload&)>;

// Whether they have scales of 1x128 and 128x128: those by row lie next to each other, rows of
// blocks at least four apart.
bool BlockScaled(const cuda::GemmArgs& args, DType dtype);

}  // namespace gemmd::kernels::bench
