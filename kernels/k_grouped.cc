#include "kernels/k_grouped.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/group_ranges.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

// The columns from `columns.first` on of an operand [rows, k], and their scales.
Operand ColumnsOf(const Operand& operand, const GroupColumns& columns) {
  Operand part = operand;
  part.values.offset_bytes +=
      columns.first * operand.values.strides[1] * SizeBytes(operand.values.dtype);
  part.values.shape[1] = columns.k;
  if (operand.granularity == ScaleGranularity::kBlock1x128) {
    TensorRef& scales = *part.scales;
    scales.offset_bytes +=
        columns.first / kScaleBlock * scales.strides[1] * SizeBytes(scales.dtype);
    scales.shape = ScaleShape(part.values.shape, operand.granularity);
  }
  return part;
}

}  // namespace

int64_t ColumnStep(const KGroupedMatmulOp& op) {
  const bool blocks = op.a.granularity == ScaleGranularity::kBlock1x128 ||
                      op.b.granularity == ScaleGranularity::kBlock1x128;
  return blocks ? kScaleBlock : 1;
}

std::vector<GroupColumns> ReadColumns(const KGroupedMatmulOp& op, const int32_t* index,
                                      DataFault& fault) {
  const GroupNumbers numbers = {op.layout, static_cast<int32_t>(op.d.shape[0]),
                                static_cast<int32_t>(op.a.values.shape[1]), op.alignment,
                                static_cast<int32_t>(ColumnStep(op))};
  std::vector<GroupColumns> found;
  for (const GroupRange& range : ReadRanges(numbers, index, fault)) {
    found.push_back({range.first, range.size});
  }
  return found;
}

MatmulOp MatmulOf(const KGroupedMatmulOp& op, int64_t group, const GroupColumns& columns) {
  MatmulOp matmul;
  matmul.a = ColumnsOf(op.a, columns);
  matmul.b = ColumnsOf(op.b, columns);
  matmul.d = ItemOf(op.d, group);
  if (op.c) matmul.c = ItemOf(*op.c, group);
  matmul.alpha = op.alpha;
  matmul.beta = op.beta;
  return matmul;
}

absl::StatusOr<KGroupedMatmulOp> OpOf(const KGroupedProblem& problem) {
  // Extents whose products ValidateOps could not multiply.
  constexpr int64_t kMostExtent = int64_t{1} << 31;
  for (const auto& [name, value] :
       {std::pair("m", problem.m), std::pair("n", problem.n), std::pair("k", problem.k),
        std::pair("groups", problem.groups)}) {
    if (value >= 1 && value <= kMostExtent) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " is not 1 to ", kMostExtent));
  }
  int slots = 0;
  const auto dense = [&slots](DType dtype, const Dims& shape) {
    return TensorRef{slots++, 0, dtype, shape, RowMajorStrides(shape)};
  };
  const auto quantized = [&](DType dtype, const Dims& shape, ScaleGranularity granularity) {
    Operand operand{dense(dtype, shape), granularity, {}};
    if (granularity == ScaleGranularity::kNone) return operand;
    operand.scales = dense(DType::kF32, ScaleShape(shape, granularity));
    if (granularity == ScaleGranularity::kBlock1x128) {  // rows next to each other
      operand.scales->strides = MakeDims({1, (shape[0] + 3) / 4 * 4});
    }
    return operand;
  };
  KGroupedMatmulOp op;
  op.layout = problem.layout;
  op.a = quantized(problem.a, MakeDims({problem.m, problem.k}), problem.a_granularity);
  op.b = quantized(problem.b, MakeDims({problem.n, problem.k}), problem.b_granularity);
  const bool ends = problem.layout == GroupLayout::kEnds;
  if (ends) op.alignment = kScaleBlock;
  op.groups = dense(DType::kI32, MakeDims({problem.groups + (ends ? 0 : 1)}));
  op.d = dense(problem.out, MakeDims({problem.groups, problem.m, problem.n}));
  if (problem.has_c) {
    op.c = op.d;
    op.beta = 1;
  }
  const std::vector<SlotInfo> infos(slots, {std::numeric_limits<int64_t>::max(), false});
  if (absl::Status valid = ValidateOps({Op(op)}, infos, {}); !valid.ok()) return valid;
  return op;
}

std::string ToString(const KGroupedProblem& problem) {
  const auto operand = [](DType dtype, ScaleGranularity granularity) {
    return granularity == ScaleGranularity::kNone
               ? std::string(Name(dtype))
               : absl::StrCat(Text(Name(dtype)), "/", Text(Name(granularity)));
  };
  return absl::StrCat("groups=", problem.groups, " along k, ", Text(Name(problem.layout)),
                      " m=", problem.m, " n=", problem.n, " k=", problem.k,
                      " a=", operand(problem.a, problem.a_granularity),
                      " b=", operand(problem.b, problem.b_granularity),
                      " d=", Text(Name(problem.out)), problem.has_c ? " +c" : "");
}

}  // namespace gemmd::kernels
