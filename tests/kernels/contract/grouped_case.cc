#include "tests/kernels/contract/grouped_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

namespace gemmd::kernels::contract {
namespace {

TensorRef ItemIn(TensorRef tensor, int64_t item) {
  tensor.offset_bytes += item * tensor.strides[0] * SizeBytes(tensor.dtype);
  for (int i = 1; i < tensor.shape.rank; ++i) {
    tensor.shape[i - 1] = tensor.shape[i];
    tensor.strides[i - 1] = tensor.strides[i];
  }
  --tensor.shape.rank;
  --tensor.strides.rank;
  return tensor;
}

int64_t MostRows(const GroupedCase& c) {
  return std::max<int64_t>(1, *std::max_element(c.rows.begin(), c.rows.end())) + c.around;
}

// Rows of a, or of each of its items.
int64_t RowsOfA(const GroupedCase& c, absl::Span<const GroupRows> groups) {
  if (c.layout == GroupLayout::kCounts) return MostRows(c);
  int64_t end = c.around;
  for (const GroupRows& group : groups) end = std::max(end, group.first + group.rows);
  return end + c.around;
}

}  // namespace

std::string ToString(const GroupedCase& c) {
  std::ostringstream text;
  text << Name(c.layout) << " n=" << c.n << " k=" << c.k << " " << Name(c.dtype) << " -> "
       << Name(c.out) << " scales " << Name(c.a_granularity) << ", " << Name(c.b_granularity)
       << (c.table ? " apart" : "") << " placed " << Name(c.a) << ", " << Name(c.b) << ", "
       << Name(c.d) << " rows";
  for (const int64_t rows : c.rows) text << " " << rows;
  return text.str();
}

std::vector<GroupRows> PlaceGroups(const GroupedCase& c) {
  std::vector<GroupRows> groups;
  int64_t at = c.layout == GroupLayout::kEnds ? 0 : c.around;
  for (size_t g = 0; g < c.rows.size(); ++g) {
    if (c.layout == GroupLayout::kCounts) {
      groups.push_back({static_cast<int64_t>(g), 0, c.rows[g]});
      continue;
    }
    // An empty group ends where the one in front does, and takes no padding.
    if (c.layout == GroupLayout::kEnds && c.rows[g] > 0) {
      at = (at + c.alignment - 1) / c.alignment * c.alignment;
    }
    groups.push_back({0, at, c.rows[g]});
    at += c.rows[g];
    if (c.layout == GroupLayout::kRowIds) at += static_cast<int64_t>(g % 3);  // padding, or none
  }
  return groups;
}

std::vector<int32_t> NumbersOf(const GroupedCase& c, absl::Span<const GroupRows> groups,
                               int64_t rows) {
  std::vector<int32_t> numbers;
  switch (c.layout) {
    case GroupLayout::kOffsets:
      for (const GroupRows& group : groups) numbers.push_back(static_cast<int32_t>(group.first));
      numbers.push_back(static_cast<int32_t>(groups.back().first + groups.back().rows));
      break;
    case GroupLayout::kCounts:
      for (const GroupRows& group : groups) numbers.push_back(static_cast<int32_t>(group.rows));
      break;
    case GroupLayout::kRowIds:
      numbers.assign(static_cast<size_t>(rows), -1);
      for (size_t g = 0; g < groups.size(); ++g) {
        std::fill_n(numbers.begin() + groups[g].first, groups[g].rows, static_cast<int32_t>(g));
      }
      break;
    case GroupLayout::kEnds:
      for (const GroupRows& group : groups) {
        numbers.push_back(static_cast<int32_t>(group.first + group.rows));
      }
      break;
  }
  return numbers;
}

GroupedScene MakeGrouped(Scene& scene, const GroupedCase& c) {
  GroupedScene made;
  GroupedMatmulOp& op = made.op;
  made.groups = PlaceGroups(c);
  const auto groups = static_cast<int64_t>(c.rows.size());
  const int64_t rows = RowsOfA(c, made.groups);
  const bool batched = c.layout == GroupLayout::kCounts;
  const auto dims = [&](int64_t cols) {
    return batched ? MakeDims({groups, rows, cols}) : MakeDims({rows, cols});
  };
  op.layout = c.layout;
  op.alignment = c.layout == GroupLayout::kEnds ? c.alignment : 1;
  op.a = scene.RandomOperand(c.dtype, dims(c.k), c.a_granularity, c.a);
  if (c.table) {
    for (int64_t g = 0; g < groups; ++g) {
      op.table.push_back(scene.RandomOperand(c.dtype, MakeDims({c.n, c.k}), c.b_granularity, c.b));
    }
    op.b = StackOf(op.table[0], groups);
  } else {
    op.b = scene.RandomOperand(c.dtype, MakeDims({groups, c.n, c.k}), c.b_granularity, c.b);
  }
  op.d = scene.Poisoned(c.out, dims(c.n), c.d);
  if (c.bias) op.bias = scene.Random(DType::kF32, MakeDims({groups, c.n}));
  const std::vector<int32_t> numbers = NumbersOf(c, made.groups, rows);
  op.groups = scene.Numbers(MakeDims({static_cast<int64_t>(numbers.size())}), numbers);
  op.alpha = AlphaWithin(c.out, c.dtype);
  return made;
}

TensorRef RowsIn(const TensorRef& tensor, const GroupedMatmulOp& op, const GroupRows& rows) {
  TensorRef found = op.layout == GroupLayout::kCounts ? ItemIn(tensor, rows.item) : tensor;
  found.offset_bytes += rows.first * found.strides[0] * SizeBytes(found.dtype);
  found.shape[0] = rows.rows;
  return found;
}

MatmulOp MatmulOfGroup(const GroupedMatmulOp& op, int64_t group, const GroupRows& rows) {
  MatmulOp matmul;
  matmul.a = op.a;
  matmul.a.values = RowsIn(op.a.values, op, rows);
  if (op.a.granularity == ScaleGranularity::kPerTensor) {
    if (op.a.scales->shape.rank == 2) matmul.a.scales = ItemIn(*op.a.scales, rows.item);
  } else if (op.a.scales) {
    matmul.a.scales = RowsIn(*op.a.scales, op, rows);
  }
  matmul.b = MatrixOf(op, group);
  matmul.d = RowsIn(op.d, op, rows);
  if (op.bias) matmul.bias = ItemIn(*op.bias, group);
  matmul.alpha = op.alpha;
  matmul.activation = op.activation;
  return matmul;
}

void ExpectOnlyGroupsWritten(const Scene& scene, const Outcome& outcome, const TensorRef& tensor,
                             const GroupedScene& grouped) {
  Bytes before = scene.slots()[tensor.slot];
  Bytes after = outcome.slots[tensor.slot];
  const int size = SizeBytes(tensor.dtype);
  for (const GroupRows& group : grouped.groups) {
    const TensorRef rows = RowsIn(tensor, grouped.op, group);
    for (int64_t i = 0; i < group.rows; ++i) {
      for (int64_t j = 0; j < rows.shape[1]; ++j) {
        const int64_t at = rows.offset_bytes + (i * rows.strides[0] + j * rows.strides[1]) * size;
        std::fill_n(before.begin() + at, size, std::byte{0});
        std::fill_n(after.begin() + at, size, std::byte{0});
      }
    }
  }
  EXPECT_TRUE(before == after) << "bytes of no group's rows were written";
}

Outcome CheckGrouped(Executor& executor, Scene& scene, const GroupedScene& grouped) {
  Outcome outcome = scene.Run(executor, Op(grouped.op));
  const std::string kernel = outcome.kernels.empty() ? "?" : outcome.kernels[0];
  for (size_t g = 0; g < grouped.groups.size(); ++g) {
    if (grouped.groups[g].rows == 0) continue;
    const MatmulOp matmul = MatmulOfGroup(grouped.op, static_cast<int64_t>(g), grouped.groups[g]);
    EXPECT_LE(Error(scene, outcome, matmul), Bound(matmul, kernel))
        << "group " << g << " by " << kernel;
  }
  ExpectOnlyGroupsWritten(scene, outcome, grouped.op.d, grouped);
  return outcome;
}

}  // namespace gemmd::kernels::contract
