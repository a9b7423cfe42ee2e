// The pieces of ValidateOps (declared in op.h). Internal to the kernels library: a rule about one
// tensor, or about two of them, stands in op_validate_tensor.cc, a rule about an op in
// op_validate.cc, op_validate_gated.cc, op_validate_grouped.cc, op_validate_k_grouped.cc,
// op_validate_normalize.cc, op_validate_choose.cc, or op_validate_table.cc.

#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "status/propagate.h"

namespace gemmd::kernels::validate {

inline constexpr DType kFactors[] = {DType::kF32,  DType::kBF16, DType::kF16,
                                     DType::kE4M3, DType::kE5M2, DType::kI8};
inline constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr DType kGatedResults[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3};

// A tensor of the op being checked, under the name that errors call it by, and the bytes it may
// touch once they are known to lie inside its slot.
struct View {
  absl::string_view name;
  const TensorRef* tensor = nullptr;
  Access access = Access::kRead;
  ByteRange range;
};

// Enum, rank, slot, extents, strides, alignment, bounds; for a written one also read-only slots and
// strides that map two elements to one address. Fills view.range.
absl::Status CheckTensor(View& view, absl::Span<const SlotInfo> slots);

// INVALID_ARGUMENT when both lie in one slot and their byte ranges meet.
absl::Status CheckApart(const View& written, const View& other);

absl::Status CheckShape(const View& view, const Dims& expected, absl::string_view expected_from);
absl::Status CheckSameShape(const View& left, const View& right);

// "e4m3 is not one of f32, bf16, f16 ..." unless `view`'s dtype is in `allowed`.
absl::Status CheckDType(const View& view, absl::Span<const DType> allowed);

// "a has shape [4]; give it WANTED": "2 dimensions, [m, k]".
absl::Status CheckRank(const View& view, int rank, absl::string_view wanted);

// The dtypes of two tensors that are multiplied.
absl::Status CheckFactors(const View& a, const View& b);

// What is added to a product `d`: its C, which may be d itself, and the factor `beta`, finite.
absl::Status CheckAddend(const std::optional<TensorRef>& c, float beta, const View& d,
                         absl::Span<const SlotInfo> slots);

// The factor of a grouped product: finite, and not 0.
absl::Status CheckGroupedAlpha(float alpha);
// That of GroupLayout::kEnds; `what` starts at multiples of it: "rows".
absl::Status CheckAlignment(GroupLayout layout, int64_t alignment, absl::string_view what);

absl::Status CheckActivation(Activation activation);

absl::Status CheckGranularity(absl::string_view name, ScaleGranularity granularity);

// The scales of `values`; leaves `view` without a tensor where there are none.
absl::Status CheckScales(const View& values, ScaleGranularity granularity,
                         const std::optional<TensorRef>& scales, View& view,
                         absl::Span<const SlotInfo> slots);

// The numbers of a gate, whichever op has it.
absl::Status CheckGateNumbers(const Gate& gate);
absl::Status CheckPeriod(int64_t period, int64_t n);
// The scales of 1x128 of a `dst` that may be E4M3, and was checked; leaves `view` without a tensor
// where there are none.
absl::Status CheckResultScales(const TensorRef& dst, const std::optional<TensorRef>& scales,
                               absl::Span<const SlotInfo> slots, View& view);
// The scales of an E4M3 `d`, which a gate leaves; leaves `view` without a tensor where there are
// none. d's shape was checked.
absl::Status CheckGateScales(const View& d, const std::optional<TensorRef>& d_scales, View& view,
                             absl::Span<const SlotInfo> slots);

// Row numbers, counts and the like: I32, stride 1 along the last dimension.
absl::Status CheckIndex(const View& view);

// The tensors of a grouped matmul's table, which may be bad ones, and their names.
struct TableViews {
  std::deque<std::string> names;  // never moved: views point at them
  std::vector<View> read;
};
// Every matrix and its scales by itself, all alike in everything but their places, and b their
// stack. Of an op that has a table.
absl::Status CheckTable(const GroupedMatmulOp& op, absl::Span<const SlotInfo> slots,
                        TableViews& views);

// Every rule of the op. Kinds that need no more of a program than its slots have one here.
absl::Status CheckOp(const GatedOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const GroupedMatmulOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const KGroupedMatmulOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const ChooseOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const RouteOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const CombineOp& op, absl::Span<const SlotInfo> slots);
absl::Status CheckOp(const NormalizeOp& op, absl::Span<const SlotInfo> slots);

}  // namespace gemmd::kernels::validate
