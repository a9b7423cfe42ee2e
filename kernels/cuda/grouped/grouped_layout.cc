#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/grouped/grouped_extents.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/rounding.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kAlignment = 256;  // of each part of the scratch

static_assert(kMostGroups == kMaxGroups);
static_assert(static_cast<int>(GroupLayoutType::kEnds) == static_cast<int>(GroupLayout::kEnds));
static_assert(static_cast<int>(GroupLayoutType::kRowIds) == static_cast<int>(GroupLayout::kRowIds));

// Bytes one behind the other, each part at a multiple of kAlignment.
class Parts {
 public:
  int64_t Add(int64_t bytes) {
    const int64_t at = end_;
    end_ = RoundUp(end_ + bytes, kAlignment);
    return at;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

// Rows that are multiplied where `active` groups have as many each.
double PaddedRows(double rows, double active) {
  if (active == 0) return 0;
  const int each = static_cast<int>(std::min(std::ceil(rows / active), 1e9));
  const GroupCut cut = CutOf(each);
  return active * (cut.wide * kWideRows + cut.half * kHalfRows + cut.thin * kThinRows);
}

// b, or each matrix of the table.
std::string MatricesWhyNot(const GroupedMatmulOp& op, DType type) {
  if (op.table.empty()) return OperandWhyNot("b", op.b, type, ScaleGranularity::kBlock128x128);
  std::string why = OperandWhyNot("weights[0]", op.table[0], type, ScaleGranularity::kBlock128x128);
  for (size_t g = 1; why.empty() && g < op.table.size(); ++g) {  // of the same strides
    const int64_t offset = op.table[g].values.offset_bytes;
    if (offset % kTmaBytes == 0) continue;
    why = StrCat("weights[", g, "] starts at byte ", offset, ", not a multiple of ", kTmaBytes,
                 "; place it there");
  }
  return why;
}

// Makes room for a table of the op's matrices.
void AddTableParts(const GroupedMatmulOp& op, bool by_tma, GroupedLayout& layout, Parts& parts) {
  const auto groups = static_cast<int64_t>(op.table.size());
  layout.table_offset = parts.Add(groups * static_cast<int64_t>(sizeof(GroupMatrix)));
  for (int list = 0; by_tma && list < kTileLists; ++list) {
    layout.maps_offset[list] = parts.Add(groups * static_cast<int64_t>(sizeof(CUtensorMap)));
  }
}

}  // namespace

std::string RowsWhyNot(const char* name, const TensorRef& tensor) {
  const int rank = tensor.shape.rank;
  const int64_t size = SizeBytes(tensor.dtype), row = tensor.shape[rank - 1] * size;
  if (tensor.shape[rank - 1] > 1 && tensor.strides[rank - 1] != 1) {
    return StrCat(name, " is not contiguous along k; copy or transpose it");
  }
  if (tensor.offset_bytes % kTmaBytes != 0) {
    return StrCat(name, " starts at byte ", tensor.offset_bytes, ", not a multiple of ", kTmaBytes,
                  "; place it there");
  }
  for (int i = 0; i + 1 < rank; ++i) {
    const int64_t least = i + 2 == rank ? row : 1, stride = tensor.strides[i] * size;
    if (tensor.shape[i] > 1 && (stride % kTmaBytes != 0 || stride < least)) {
      return StrCat(name, " has a stride of ", stride, " bytes, not a multiple of ", kTmaBytes,
                    " of at least k; pad its rows");
    }
  }
  return "";
}

namespace {

// Whether rows of d, or of the product in front of a gate, start at multiples of 16 bytes.
bool HasRowsOfUnits(const GroupedMatmulOp& op) {
  constexpr int64_t kUnit = 8;  // elements of 16 bits
  if (op.gate) return op.b.values.shape[1] % kUnit == 0;
  const TensorRef& d = op.d;
  const int last = d.shape.rank - 1;
  return d.offset_bytes % kTmaBytes == 0 && d.strides[last - 1] % kUnit == 0 &&
         (last == 1 || d.strides[0] % kUnit == 0);
}

}  // namespace

bool NeedsFinish(const GroupedMatmulOp& op) {
  return op.d.dtype == DType::kF32 || op.alpha != 1.0f || op.bias ||
         op.activation != Activation::kNone || !HasRowsOfUnits(op);
}

std::string ResultWhyNot(const GroupedMatmulOp& op, const GroupedExtents& extents) {
  if (op.bias && extents.n > 1 && op.bias->strides[1] != 1) {
    return StrCat("bias has a stride of ", op.bias->strides[1], "; copy it to be dense");
  }
  if (op.gate && op.bias && op.bias->dtype == DType::kF16) {
    return "bias is f16 and the product in front of the gate is not; make it f32";
  }
  if (op.gate) return "";  // the product lies in scratch memory
  const TensorRef& d = op.d;
  const int rank = d.shape.rank;
  if (extents.n > 1 && d.strides[rank - 1] != 1) {
    return "d is not contiguous along n; use a row-major d";
  }
  if (extents.rows > 1 && d.strides[rank - 2] < extents.n) {
    return StrCat("rows of d are ", d.strides[rank - 2], " elements apart, less than n=", extents.n,
                  "; raise the stride");
  }
  return "";
}

std::string OperandWhyNot(const char* name, const Operand& operand, DType type,
                          ScaleGranularity wanted) {
  if (operand.values.dtype != type) {
    return StrCat(name, " is ", Text(Name(operand.values.dtype)), "; these kernels multiply ",
                  Text(Name(type)));
  }
  if (operand.granularity != wanted) {
    return StrCat("scales of ", name, " are ", Text(Name(operand.granularity)),
                  "; these kernels need ", Text(Name(wanted)));
  }
  return RowsWhyNot(name, operand.values);
}

std::string WhyNotFused(const GroupedMatmulOp& op) {
  if (op.bias) return "it has a bias; kernels that apply a gate add none";
  return WhyNotFused(*op.gate, op.b.values.shape[1], op.d);
}

namespace {

// Of the kernels for block scales, of this type.
std::string WhyNotBlocks(const GroupedMatmulOp& op, DType type) {
  const GroupedExtents extents(op);
  std::string why = OperandWhyNot("a", op.a, type, ScaleGranularity::kBlock1x128);
  if (why.empty()) why = MatricesWhyNot(op, type);
  if (why.empty()) why = ResultWhyNot(op, extents);
  if (!why.empty()) return why;
  if (extents.rows == 0 || extents.n == 0 || extents.k == 0) return "there is nothing to multiply";
  const TensorRef& scales = *op.b.scales;
  if (scales.shape[2] > 1 && scales.strides[2] != 1) {
    return "scales of b are not contiguous along k; copy them";
  }
  // A wide tile's columns are two thin tiles'.
  constexpr int64_t kMostWork = int64_t{1} << 28;
  const GemmConfig& wide = kSm90Fp8Grouped.configs[kWideTile];
  const int64_t tiles =
      MostTiles(extents, op.layout == GroupLayout::kCounts, extents.rows, wide.block_m()) +
      2 * extents.groups;
  if (tiles > kMostWork / CeilDiv(extents.n, wide.block_n())) {
    return StrCat("groups may have more than ", kMostWork, " tiles; split the op");
  }
  return "";
}

}  // namespace

std::string WhyNotFp8(const GroupedMatmulOp& op) { return WhyNotBlocks(op, DType::kE4M3); }

std::string WhyNotTma(const GroupedMatmulOp& op) {
  if (IsDirect(op.a)) return WhyNotDirect(op);
  return WhyNotBlocks(op, op.a.values.dtype == DType::kI8 ? DType::kI8 : DType::kE4M3);
}

GroupedLayout LayoutOf(const GroupedMatmulOp& op, bool by_tma, bool fused) {
  const GroupedExtents extents(op);
  const bool counts = op.layout == GroupLayout::kCounts;
  GroupedLayout layout;
  layout.by_tma = by_tma;
  layout.fused = fused;
  if (by_tma && !IsDirect(op.a)) {
    layout.rows = RowsKernelOf(op, fused);
  }
  Parts parts;
  if (by_tma && IsDirect(op.a)) {
    layout.direct_config = DirectConfigOf(op);
  } else if (by_tma) {
    int slots = 0;
    ForEachTensor(
        Op(op), [&](const TensorRef& tensor, Access) { slots = std::max(slots, tensor.slot + 1); });
    const std::vector<std::byte*> somewhere(slots,
                                            reinterpret_cast<std::byte*>(uintptr_t{kAlignment}));
    layout.copies = CopiesOfA(ArgsOf(op, somewhere));
    parts.Add(layout.copies.scratch_bytes);
  } else {
    layout.most_tiles[0] = MostTiles(extents, counts, extents.rows, kAnyGroupedRows);
  }
  // The TMA kernels read offsets and counts by themselves, and a gate behind them the former.
  const bool offsets = op.layout == GroupLayout::kOffsets;
  layout.makes_rows = by_tma ? !offsets && (!counts || (op.gate && !fused)) : op.gate.has_value();
  if (layout.makes_rows) {
    layout.starts_offset = parts.Add(2 * extents.groups * static_cast<int64_t>(sizeof(int32_t)));
  }
  if (!by_tma) {
    layout.counts_offset = parts.Add(kTileLists * sizeof(int32_t));
    layout.tiles_offset[0] =
        parts.Add(layout.most_tiles[0] * static_cast<int64_t>(sizeof(GroupTile)));
  }
  if (!op.table.empty()) AddTableParts(op, by_tma, layout, parts);
  if (op.gate && !fused) {
    layout.product = op.d.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
    if (layout.makes_rows) {
      layout.owners_offset =
          parts.Add(extents.items * extents.rows * static_cast<int64_t>(sizeof(int32_t)));
    }
    const double bytes = 1.0 * static_cast<double>(extents.items * extents.rows) *
                         static_cast<double>(extents.n) * SizeBytes(layout.product);
    // Beyond any limit: the caller refuses it.
    layout.product_offset =
        parts.Add(bytes > 1e15 ? int64_t{1} << 50 : static_cast<int64_t>(bytes));
  }
  if (by_tma) parts.Add(1);  // in front of which the tickets lie
  layout.scratch_bytes = parts.end();
  return layout;
}

double GroupedSeconds(const GroupedMatmulOp& op, bool by_tma, double memory_bytes_per_s,
                      bool fused) {
  // Of this share of a peak of 1.98 PFLOP/s and of the memory's rate; sm90_any_gemm's as measured.
  constexpr double kFp8Flops = 1.3e15, kI8BlockFlops = 1.2e15, kAnyFlops = 6e13, kMemoryShare = 0.8;
  // Of kernels that apply a gate, as measured at few rows. Their tiles are half as many: where
  // those are no more than the SMs, this is what it costs.
  constexpr double kFusedShare = 0.75, kFusedSeconds = 8e-6;
  // A gate behind the product, and where offsets do not tell it which rows are somebody's.
  constexpr double kGateSeconds = 3e-6, kOwnersSeconds = 6e-6;
  constexpr double kLaunchesSeconds = 8e-6;
  const GroupedExtents extents(op);
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : 4e12;
  const double rows = static_cast<double>(ExpectedRows(op));
  const double active = std::min(static_cast<double>(extents.groups), rows);
  const double columns = static_cast<double>(extents.n), k = static_cast<double>(extents.k);
  const double bytes = active * columns * k * SizeBytes(op.b.values.dtype) +
                       rows * (k * SizeBytes(op.a.values.dtype) + columns * SizeBytes(op.d.dtype));
  const double flops = 2 * PaddedRows(rows, active) * columns * k;
  const DType type = op.a.values.dtype;
  const bool int8 = type == DType::kI8;
  const double direct_flops = int8                   ? kDirectInt8Ops
                              : type == DType::kE4M3 ? kDirectFp8Flops
                                                     : kDirectFlops;
  const double tma_flops = IsDirect(op.a) ? direct_flops : int8 ? kI8BlockFlops : kFp8Flops;
  double gate = 0;
  if (op.gate && !fused) {
    gate = kGateSeconds + rows * columns * 5 / (rate * kMemoryShare) +
           (op.layout == GroupLayout::kOffsets ? 0 : kOwnersSeconds);
  }
  return kLaunchesSeconds + (fused ? kFusedSeconds : gate) +
         std::max(flops / (by_tma ? tma_flops : kAnyFlops),
                  bytes / (rate * (fused ? kFusedShare : kMemoryShare)));
}

}  // namespace gemmd::kernels::cuda
