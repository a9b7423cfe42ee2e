// What the host knows of each operand kind (Mma): one row a kind. What the device knows stands in
// gemm_config.h.

#pragma once

#include "kernels/cuda/sm90/gemm_config.h"
#include "kernels/dtype.h"

namespace gemmd::kernels::cuda {

enum class KindScales : uint8_t {
  kNone,
  kBlocks,    // of A 1x128, of B 128x128
  kAtTheEnd,  // by row, by tensor or none, on both sides
};

struct OperandKind {
  Mma mma;
  DType operand;  // of both
  KindScales scales;
  const char* description;
};

inline constexpr OperandKind kOperandKinds[] = {
    {Mma::kFp8Block, DType::kE4M3, KindScales::kBlocks, "E4M3 with 1x128 and 128x128 scales"},
    {Mma::kBf16, DType::kBF16, KindScales::kNone, "BF16"},
    {Mma::kF16, DType::kF16, KindScales::kNone, "FP16"},
    {Mma::kI8, DType::kI8, KindScales::kAtTheEnd, "INT8 with scales by row or tensor, or none"},
    {Mma::kI8Block, DType::kI8, KindScales::kBlocks, "INT8 with 1x128 and 128x128 scales"},
    {Mma::kFp8Row, DType::kE4M3, KindScales::kAtTheEnd,
     "E4M3 with scales by row or tensor, or none"},
    {Mma::kF32, DType::kF32, KindScales::kNone, "FP32 by its three BF16 parts, copied in front"},
};

constexpr const OperandKind& KindOf(Mma mma) {
  for (const OperandKind& kind : kOperandKinds) {
    if (kind.mma == mma) return kind;
  }
  return kOperandKinds[0];  // every kind of the pool has a row: choice_test
}

}  // namespace gemmd::kernels::cuda
