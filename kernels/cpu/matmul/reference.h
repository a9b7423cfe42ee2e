// The oracle: plain float64 loops over dequantised operands, no BLAS, nothing shared
// with the kernels it judges. Slow on purpose: for tests, and for the self-test of a GPU's kernels.

#pragma once

#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace gemmd::kernels {

// The tensor's elements as double, row-major, before any scale.
std::vector<double> ReadTensor(const TensorRef& tensor, const Bindings& bindings);
std::vector<double> ReadTensor(const TensorRef& tensor, const std::byte* slot);
// The operand's values times their scales, [batch?, rows, k] row-major.
std::vector<double> Dequantize(const Operand& operand, const Bindings& bindings);
// D in float64, [batch?, m, n] row-major, unrounded.
std::vector<double> ReferenceMatmul(const MatmulOp& op, const Bindings& bindings);

// Activation by its definition. -infinity gives the limit.
double ReferenceActivation(Activation activation, double x);
// dst in float64, [batch?, rows, n] row-major, unrounded.
std::vector<double> ReferenceGated(const GatedOp& op, const Bindings& bindings);

// ||out - ref|| / ||ref||; NaN anywhere in either gives NaN; 0/0 is 0.
double RelativeError(absl::Span<const double> out, absl::Span<const double> ref);

}  // namespace gemmd::kernels
