// What the gradient kernels' legality, launch and time ask of a problem alike.

#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/matmul/gradient/gradient_launch.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {

inline constexpr int64_t kMostStride = int64_t{1} << 39;

inline bool IsFp8(ElementType type) {
  return type == ElementType::kE4M3 || type == ElementType::kE5M2;
}
inline bool Is16Bits(ElementType type) {
  return type == ElementType::kBF16 || type == ElementType::kF16;
}

inline const GradientFamilyEntry& GradientEntryOf(ElementType type) {
  return type == ElementType::kBF16  ? kSm90Bf16Gradient
         : type == ElementType::kF16 ? kSm90F16Gradient
                                     : kSm90Fp8Gradient;
}
inline bool Aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kTmaBytes == 0;
}

// A side's rows, and how many matrices of it there are.
struct GradientSide {
  const char* name;
  const AnyOperand& operand;
  ElementType type;
  ScaleGranularity granularity;
  int64_t rows;
  int64_t batch;
};
inline std::pair<GradientSide, GradientSide> SidesOf(const GradientProblem& p) {
  const AnyGemmArgs& g = p.args;
  const int64_t batch = p.grouped ? 1 : g.batch;
  return {{"a", g.a, g.type, p.a, g.m, batch}, {"b", g.b, g.b_type, p.b, g.n, batch}};
}

// Whether the operand lies along its rows and not along k.
inline bool AlongRows(const AnyOperand& x, int64_t k) { return k > 1 && x.k_stride != 1; }

// What a cluster computes at a time covers D by so many.
struct ClusterTiles {
  int64_t rows;
  int64_t cols;
};
inline ClusterTiles ClusterTilesOf(const AnyGemmArgs& g, const GemmConfig& shape) {
  return {CeilDiv(g.m, shape.rows * shape.share_cols), CeilDiv(g.n, shape.cols * shape.share_rows)};
}

}  // namespace gemmd::kernels::cuda
