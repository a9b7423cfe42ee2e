// What compiling and launching both ask of an op of a program (cuda_program.cc, program_launch.cc,
// program_far.cc).

#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/op.h"
#include "kernels/tensor.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {

// The status with the op it is about in front.
inline absl::Status Annotate(const absl::Status& status, size_t index, const Op& op) {
  return absl::Status(status.code(),
                      absl::StrCat("op ", index, " (", Text(Name(op)), "): ", status.message()));
}

inline int64_t DenseBytes(const TensorRef& tensor) {
  return NumElements(tensor.shape).value_or(0) * SizeBytes(tensor.dtype);
}

// Whether the tensor's bytes are one run.
inline bool IsDense(const TensorRef& tensor) {
  const Dims dense = RowMajorStrides(tensor.shape);
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != dense[i]) return false;
  }
  return true;
}

// The tensor of a Write or Read, or null.
inline const TensorRef* Moved(const Op& op) {
  if (const auto* write = std::get_if<WriteOp>(&op)) return &write->dst;
  if (const auto* read = std::get_if<ReadOp>(&op)) return &read->src;
  return nullptr;
}

}  // namespace gemmd::kernels::cuda
