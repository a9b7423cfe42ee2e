#include "kernels/grouping.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/group_ranges.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

using absl::StrCat;

// Groups that are not told by where they begin and end.
class Reader {
 public:
  Reader(const int32_t* index, int32_t groups, int32_t rows, DataFault& fault)
      : index_(index), fault_(fault), groups_(groups), rows_(rows), found_(groups) {}

  void Counts() {
    for (int32_t g = 0; g < groups_; ++g) {
      if (index_[g] < 0 || index_[g] > rows_) {
        ReportFirst(fault_, {DataFaultKind::kCount, g, index_[g], rows_});
      } else {
        found_[g] = {g, 0, index_[g]};
      }
    }
  }

  void RowIds() {
    int32_t latest = -1;  // group that rows were given to last
    for (int32_t i = 0; i < rows_; ++i) {
      const int32_t id = index_[i];
      if (id == -1) continue;
      if (id < -1 || id >= groups_) {
        ReportFirst(fault_, {DataFaultKind::kRowId, i, id, groups_ - 1});
      } else if (id < latest || (id == latest && index_[i - 1] != id)) {
        ReportFirst(fault_, {DataFaultKind::kRowOrder, i, id, groups_ - 1});
      } else {
        if (id != latest) found_[id] = {0, i, 0};
        ++found_[id].rows;
        latest = id;
      }
    }
  }

  std::vector<GroupRows> Take() { return std::move(found_); }

 private:
  const int32_t* const index_;
  DataFault& fault_;
  const int32_t groups_;
  const int32_t rows_;
  std::vector<GroupRows> found_;
};

std::string TextOf(const DataFault& f) {
  const std::string at = StrCat("[", f.index, "]=", f.value);
  switch (f.kind) {
    case DataFaultKind::kNone:
      return "";
    case DataFaultKind::kCount:
      return StrCat("groups", at, " is not a count of 0 to ", f.limit,
                    " rows; a group has as many "
                    "as an item of a at most");
    case DataFaultKind::kOffset:
      return StrCat("groups", at, " is not an offset of 0 to ", f.limit,
                    ", or falls below the one in front of it; give offsets that rise");
    case DataFaultKind::kRowId:
      return StrCat("groups", at, " is no group; use -1 to ", f.limit);
    case DataFaultKind::kRowOrder:
      return StrCat("groups", at, " comes behind rows of another group; order rows by group");
    case DataFaultKind::kEnd:
      return StrCat("groups", at, " is an end before its group's start, or beyond ", f.limit,
                    "; give ends that rise");
    case DataFaultKind::kRow:
      return StrCat("rows", at, " is no row of src; use -1 to ", f.limit);
    case DataFaultKind::kExpert:
      return StrCat("ids", at, " is no expert; use -1 to ", f.limit);
    case DataFaultKind::kPosition:
      return StrCat("positions", at, " is no row of src; use -1 to ", f.limit);
    case DataFaultKind::kColumn:
      return StrCat("group ", f.index, " starts at column ", f.value, ", no multiple of ", f.limit,
                    ", whose scale it would share with the group in front; pad the columns, and "
                    "give ends with an alignment of ",
                    f.limit);
  }
  return StrCat("unknown fault ", static_cast<int32_t>(f.kind));
}

}  // namespace

std::vector<GroupRows> ReadGroups(const GroupedMatmulOp& op, const int32_t* index,
                                  DataFault& fault) {
  const Dims& a = op.a.values.shape;
  const auto groups = static_cast<int32_t>(op.b.values.shape[0]);
  const auto rows = static_cast<int32_t>(a[a.rank - 2]);
  Reader reader(index, groups, rows, fault);
  switch (op.layout) {
    case GroupLayout::kCounts:
      reader.Counts();
      return reader.Take();
    case GroupLayout::kRowIds:
      reader.RowIds();
      return reader.Take();
    case GroupLayout::kOffsets:
    case GroupLayout::kEnds:
      break;
  }
  std::vector<GroupRows> found;
  for (const GroupRange& range :
       ReadRanges({op.layout, groups, rows, op.alignment}, index, fault)) {
    found.push_back({0, range.first, range.size});
  }
  return found;
}

TensorRef RowsOf(const TensorRef& tensor, const GroupedMatmulOp& op, const GroupRows& rows) {
  TensorRef found = op.layout == GroupLayout::kCounts ? ItemOf(tensor, rows.item) : tensor;
  found.offset_bytes += rows.first * found.strides[0] * SizeBytes(found.dtype);
  found.shape[0] = rows.rows;
  return found;
}

MatmulOp MatmulOf(const GroupedMatmulOp& op, int64_t group, const GroupRows& rows) {
  MatmulOp matmul;
  matmul.a = op.a;
  matmul.a.values = RowsOf(op.a.values, op, rows);
  if (op.a.granularity != ScaleGranularity::kPerTensor) {
    if (op.a.scales) matmul.a.scales = RowsOf(*op.a.scales, op, rows);
  } else if (op.a.scales->shape.rank > 1) {  // of an item; [1] are all rows'
    matmul.a.scales = ItemOf(*op.a.scales, rows.item);
  }
  matmul.b = MatrixOf(op, group);
  matmul.d = RowsOf(op.d, op, rows);
  if (op.bias) matmul.bias = ItemOf(*op.bias, group);
  matmul.alpha = op.alpha;
  matmul.activation = op.activation;
  return matmul;
}

absl::Status ToStatus(const DataFault& fault, size_t op_index, const Op& op) {
  if (fault.kind == DataFaultKind::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("op ", op_index, " (", kernels::Text(Name(op)), "): ", TextOf(fault)));
}

}  // namespace gemmd::kernels
