#include "kernels/grouped_problem.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

// Gives each tensor the next slot.
class Slots {
 public:
  TensorRef Dense(DType dtype, const Dims& shape) {
    return {next_++, 0, dtype, shape, RowMajorStrides(shape)};
  }
  Operand Quantized(DType dtype, const Dims& shape, ScaleGranularity granularity) {
    Operand operand{Dense(dtype, shape), granularity, {}};
    if (granularity != ScaleGranularity::kNone) {
      operand.scales = Dense(DType::kF32, ScaleShape(shape, granularity));
    }
    return operand;
  }
  std::vector<SlotInfo> infos() const {
    return std::vector<SlotInfo>(next_, {std::numeric_limits<int64_t>::max(), false});
  }

 private:
  int next_ = 0;
};

// Scales [.., rows, blocks] with rows next to each other, columns at multiples of 16 bytes: as the
// copy engine takes them.
void LayByColumns(TensorRef& scales) {
  const int rank = scales.shape.rank;
  const int64_t ld = (scales.shape[rank - 2] + 3) / 4 * 4;
  scales.strides[rank - 2] = 1;
  scales.strides[rank - 1] = ld;
  if (rank == 3) scales.strides[0] = ld * scales.shape[2];
}

Dims NumbersOf(const GroupedProblem& problem) {
  switch (problem.layout) {
    case GroupLayout::kOffsets:
      return MakeDims({problem.groups + 1});
    case GroupLayout::kRowIds:
      return MakeDims({problem.m});
    case GroupLayout::kCounts:
    case GroupLayout::kEnds:
      break;
  }
  return MakeDims({problem.groups});
}

std::string OperandText(DType dtype, ScaleGranularity granularity) {
  std::string text(Name(dtype));
  if (granularity != ScaleGranularity::kNone) absl::StrAppend(&text, "/", Text(Name(granularity)));
  return text;
}

}  // namespace

absl::StatusOr<GroupedMatmulOp> OpOf(const GroupedProblem& problem) {
  // Extents whose products ValidateOps could not multiply.
  constexpr int64_t kMostExtent = int64_t{1} << 31;
  for (const auto& [name, value] :
       {std::pair("m", problem.m), std::pair("n", problem.n), std::pair("k", problem.k)}) {
    if (value >= 1 && value <= kMostExtent) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " is not 1 to ", kMostExtent));
  }
  if (problem.groups < 1 || problem.groups > kMaxGroups) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups=", problem.groups, " is not 1 to ", kMaxGroups));
  }
  const bool counts = problem.layout == GroupLayout::kCounts;
  const auto dims = [&](int64_t columns) {
    return counts ? MakeDims({problem.groups, problem.m, columns}) : MakeDims({problem.m, columns});
  };
  Slots slots;
  GroupedMatmulOp op;
  op.layout = problem.layout;
  op.a = slots.Quantized(problem.operands, dims(problem.k), problem.a_granularity);
  if (problem.a_granularity == ScaleGranularity::kBlock1x128) LayByColumns(*op.a.scales);
  if (problem.apart) {
    for (int64_t g = 0; g < problem.groups; ++g) {
      op.table.push_back(slots.Quantized(problem.operands, MakeDims({problem.n, problem.k}),
                                         problem.b_granularity));
    }
    op.b = StackOf(op.table[0], problem.groups);
  } else {
    op.b = slots.Quantized(problem.operands, MakeDims({problem.groups, problem.n, problem.k}),
                           problem.b_granularity);
  }
  op.groups = slots.Dense(DType::kI32, NumbersOf(problem));
  op.gate = problem.gate;
  op.d = slots.Dense(problem.out, dims(problem.gate ? problem.n / 2 : problem.n));
  if (problem.out == DType::kE4M3) {
    op.d_scales = slots.Dense(DType::kF32, ScaleShape(op.d.shape, ScaleGranularity::kBlock1x128));
  }
  if (problem.has_bias) {
    op.bias = slots.Dense(DType::kF32, MakeDims({problem.groups, problem.n}));
  }
  op.activation = problem.activation;
  op.expected_rows = problem.expected_rows;
  if (absl::Status valid = ValidateOps({Op(op)}, slots.infos(), {}); !valid.ok()) return valid;
  return op;
}

std::string ToString(const GroupedProblem& problem) {
  std::string text = absl::StrCat("groups=", problem.groups, " ", Text(Name(problem.layout)),
                                  " m=", problem.m, " n=", problem.n, " k=", problem.k,
                                  " a=", OperandText(problem.operands, problem.a_granularity),
                                  " b=", OperandText(problem.operands, problem.b_granularity),
                                  " d=", OperandText(problem.out, ScaleGranularity::kNone));
  if (problem.apart) absl::StrAppend(&text, " apart");
  if (problem.gate) absl::StrAppend(&text, " gate=", Text(Name(problem.gate->activation)));
  if (problem.has_bias) absl::StrAppend(&text, " +bias");
  if (problem.activation != Activation::kNone) {
    absl::StrAppend(&text, " ", Text(Name(problem.activation)));
  }
  if (problem.expected_rows > 0) absl::StrAppend(&text, " expecting ", problem.expected_rows);
  return text;
}

}  // namespace gemmd::kernels
