// GroupedProblem: a grouped matmul without its memory, as Explain is asked about it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/op.h"

namespace gemmd::kernels {

struct GroupedProblem {
  int64_t groups = 1;
  int64_t m = 0;  // rows of a; of kCounts those of each item
  int64_t n = 0;
  int64_t k = 0;
  GroupLayout layout = GroupLayout::kOffsets;
  DType operands = DType::kF32;
  DType out = DType::kF32;  // E4M3 with a gate, and scales of 1x128 then
  ScaleGranularity a_granularity = ScaleGranularity::kNone;
  ScaleGranularity b_granularity = ScaleGranularity::kNone;
  bool apart = false;  // a table of matrices instead of one tensor
  std::optional<Gate> gate;
  bool has_bias = false;
  Activation activation = Activation::kNone;
  int64_t expected_rows = 0;
};

// Of tensors as they lie best: row-major, a's scales of 1x128 by columns, each in a slot of its
// own. INVALID_ARGUMENT when no tensors make it a valid one.
absl::StatusOr<GroupedMatmulOp> OpOf(const GroupedProblem& problem);

// "groups=8 offsets m=512 n=4096 k=7168 a=e4m3/1x128 b=e4m3/128x128 d=bf16"
std::string ToString(const GroupedProblem& problem);

}  // namespace gemmd::kernels
