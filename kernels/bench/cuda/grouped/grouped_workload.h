// The operands of a grouped matmul on the device, and the op that multiplies them.

#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/grouped/grouped_case.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/cuda/grouped/grouped_op.h"

namespace gemmd::kernels::bench {

class GroupedWorkload {
 public:
  absl::Status Prepare(const GroupedBenchCase& c, uint64_t seed, cudaStream_t stream);

  // The op's launches, by the TMA kernels or by the one that takes anything, whose d is another.
  // `config`: if not negative, that one of the family's, or of block scales that RowsKernel.
  absl::StatusOr<Call> Bind(bool tma, const cuda::DeviceTraits& device, int config = -1,
                            int grain = cuda::kGrainThatFills);

  // The kernel that the op's FP8 launches are by.
  cuda::RowsKernel Chosen() const { return cuda::LayoutOf(OpOf(true), true).rows; }

  // ||d - the other's|| / ||the other's|| over the groups' rows, once both have run; infinite if a
  // byte of d around them was written.
  absl::StatusOr<double> Difference(cudaStream_t stream);

  // Whether d has the bits that it had when this was asked first; the other's d is overwritten.
  absl::StatusOr<bool> SameBits(cudaStream_t stream);

  // The weights of groups with rows, the rows and the results: what has to be moved.
  FloorTraffic traffic() const;

 private:
  absl::Status Quantize(uint64_t seed, cudaStream_t stream);
  absl::Status QuantizeRows(uint64_t seed, cudaStream_t stream);
  absl::Status MakeValues(uint64_t seed, cudaStream_t stream);
  GroupedMatmulOp OpOf(bool tma) const;
  std::vector<int32_t> Index() const;
  int64_t items() const { return case_.m_max > 0 ? static_cast<int64_t>(case_.rows.size()) : 1; }
  int64_t rows_of_item() const { return case_.m_max > 0 ? case_.m_max : case_.starts().back(); }
  int64_t all_rows() const { return items() * rows_of_item(); }
  int64_t element_bytes() const { return SizeBytes(case_.dtype); }
  DType out() const { return element_bytes() == 1 ? DType::kBF16 : case_.dtype; }
  bool blocks() const { return element_bytes() == 1 && case_.blocks; }

  GroupedBenchCase case_;
  DeviceBuffer a_, a_scales_, b_, b_scales_, index_, d_, other_d_, scratch_, other_scratch_, sink_;
  DeviceBuffer fault_, differing_;
  bool kept_ = false;  // d's bits, in the other's d
};

}  // namespace gemmd::kernels::bench
