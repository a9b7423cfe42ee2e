#include "kernels/cuda/grouped/grouped_direct.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/grouped/grouped_extents.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

// Of products of up to 2^14, sums of so many stay below 2^31.
constexpr int64_t kMostInt8K = (int64_t{1} << 17) - 1;

const DirectGroupedEntry* EntryFor(DType operands) {
  switch (operands) {
    case DType::kBF16:
      return &kSm90Bf16Grouped;
    case DType::kF16:
      return &kSm90F16Grouped;
    case DType::kI8:
      return &kSm90I8Grouped;
    case DType::kE4M3:
      return &kSm90Fp8RowGrouped;
    default:
      return nullptr;
  }
}
bool IsDirectType(DType type) { return EntryFor(type) != nullptr; }
const DirectGroupedEntry& EntryOf(DType operands) { return *EntryFor(operands); }

std::string ScalesWhyNot(const char* name, const Operand& operand) {
  const ScaleGranularity given = operand.granularity;
  const bool scaled = SizeBytes(operand.values.dtype) == 1;
  if (given == ScaleGranularity::kNone) return "";
  if (scaled && (given == ScaleGranularity::kPerTensor || given == ScaleGranularity::kPerRow)) {
    return "";
  }
  return StrCat("scales of ", name, " are ", Text(Name(given)), "; these kernels need ",
                scaled ? "none, tensor or row" : "none");
}

// Weights [.., n, k] that lie along n, of a type whose kernels read them so.
bool LiesAlongRows(const TensorRef& b) {
  const int rank = b.shape.rank;
  return EntryFor(b.dtype) != nullptr && EntryFor(b.dtype)->along_rows != nullptr &&
         b.strides[rank - 1] != 1 && b.shape[rank - 1] > 1 &&
         (b.strides[rank - 2] == 1 || b.shape[rank - 2] == 1);
}
TensorRef Transposed(TensorRef tensor) {
  const int last = tensor.shape.rank - 1;
  std::swap(tensor.shape[last], tensor.shape[last - 1]);
  std::swap(tensor.strides[last], tensor.strides[last - 1]);
  return tensor;
}

std::string DirectOperandWhyNot(const char* name, const Operand& operand, DType wanted) {
  const DType given = operand.values.dtype;
  if (given != wanted || !IsDirectType(given)) {
    return StrCat(name, " is ", Text(Name(given)), "; these kernels multiply ",
                  IsDirectType(wanted) ? Text(Name(wanted)) : "bf16, f16, i8 or e4m3");
  }
  return ScalesWhyNot(name, operand);
}
std::string WeightsWhyNot(const char* name, const Operand& operand, DType wanted) {
  std::string why = DirectOperandWhyNot(name, operand, wanted);
  if (!why.empty()) return why;
  const TensorRef& values = operand.values;
  return RowsWhyNot(name, LiesAlongRows(values) ? Transposed(values) : values);
}

absl::Status MakeMaps(const GemmConfig& wide, const GemmConfig& thin, const GemmArgs& args,
                      int64_t matrices, DirectGroupedLaunch& launch) {
  const int64_t bytes = wide.element_bytes(), k = args.k * bytes;
  TensorView wide_a = {.address = args.a,
                       .cols = k,
                       .rows = args.m,
                       .batch = args.batch,
                       .row_stride_bytes = args.lda * bytes,
                       .batch_stride_bytes = args.a_batch * bytes,
                       .box_cols = kRowBytes,
                       .box_rows = kRowsAWideBox};
  TensorView wide_b = {.address = args.b,
                       .cols = k,
                       .rows = args.n,
                       .batch = matrices,
                       .row_stride_bytes = args.ldb * bytes,
                       .batch_stride_bytes = args.b_batch * bytes,
                       .box_cols = kRowBytes,
                       .box_rows = wide.rows};
  TensorView full_a = wide_a, thin_a = wide_a, thin_b = wide_b;
  full_a.box_rows = kFullBoxRows;
  thin_a.box_rows = kRowsABox;
  if (launch.whole_blocks) {
    thin_b.cols = kRowBytes;
    thin_b.planes = launch.k_blocks;
    thin_b.plane_stride_bytes = kRowBytes;
    thin_b.box_planes = thin.k_blocks;
  }
  if (args.b_along_rows) {
    wide_b.cols = args.n * bytes;
    wide_b.rows = args.k;
    wide_b.box_rows = wide.block_k();
    thin_b = wide_b;
  }
  for (const auto& [map, view] : {std::pair(&launch.wide_a, &wide_a),
                                  {&launch.full_a, &full_a},
                                  {&launch.wide_b, &wide_b},
                                  {&launch.thin_a, &thin_a},
                                  {&launch.thin_b, &thin_b}}) {
    const absl::StatusOr<CUtensorMap> made = ValuesMap(*view);
    if (!made.ok()) return made.status();
    *map = *made;
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDirect(const Operand& a) {
  return IsDirectType(a.values.dtype) && a.granularity != ScaleGranularity::kBlock1x128;
}

std::string_view TmaGroupedName(const Operand& a) {
  if (IsDirect(a)) return EntryOf(a.values.dtype).name;
  return a.values.dtype == DType::kI8 ? kI8BlockGroupedName : kFp8GroupedName;
}

std::string WhyNotDirect(const GroupedMatmulOp& op) {
  const GroupedExtents extents(op);
  const DType type = op.a.values.dtype;
  std::string why = DirectOperandWhyNot("a", op.a, type);
  if (why.empty()) why = RowsWhyNot("a", op.a.values);
  if (op.table.empty()) {
    if (why.empty()) why = WeightsWhyNot("b", op.b, type);
  } else {
    for (size_t g = 0; why.empty() && g < op.table.size(); ++g) {
      why = WeightsWhyNot(StrCat("weights[", g, "]").c_str(), op.table[g], type);
    }
  }
  if (why.empty()) why = ResultWhyNot(op, extents);
  if (!why.empty()) return why;
  if (extents.rows == 0 || extents.n == 0 || extents.k == 0) return "there is nothing to multiply";
  if (type == DType::kI8 && extents.k > kMostInt8K) {
    return StrCat("k=", extents.k, " exceeds ", kMostInt8K,
                  ", above which sums in 32 bits could overflow; divide the matrices along k");
  }
  constexpr int64_t kMostWork = int64_t{1} << 28;
  const GemmConfig& wide = EntryOf(type).wide[0];
  const int64_t tiles =
      MostTiles(extents, op.layout == GroupLayout::kCounts, extents.rows, wide.cols);
  if (tiles > kMostWork / CeilDiv(extents.n, wide.rows)) {
    return StrCat("groups may have more than ", kMostWork, " tiles; split the op");
  }
  return "";
}

int DirectConfigOf(const GroupedMatmulOp& op) {
  // Pairs where none lacks a partner.
  const int64_t tiles = CeilDiv(op.b.values.shape[1], kSm90Bf16Grouped.wide[0].rows);
  return tiles % 2 == 0 ? kDirectPairs : kDirectAlone;
}

absl::StatusOr<DirectGrouped> PrepareDirect(const GroupedMatmulOp& op, int config,
                                            const AnyGemmArgs& args, const void* bias,
                                            const GroupSource& source, int sms) {
  DirectGrouped direct;
  const TensorRef& b = op.table.empty() ? op.b.values : op.table[0].values;
  const bool along_rows = LiesAlongRows(b);
  direct.entry = &EntryOf(op.a.values.dtype);
  if (along_rows) {
    direct.entry = direct.entry->along_rows;
  } else if (NeedsFinish(op)) {
    direct.entry = direct.entry->finishing;
  }
  direct.config = config;
  if (absl::Status s = ToStatus(direct.entry->prepare(config), "preparing a grouped kernel");
      !s.ok()) {
    return s;
  }
  const GemmConfig &wide = direct.entry->wide[config], &thin = direct.entry->thin[config];
  DirectGroupedLaunch& launch = direct.launch;
  launch.args = GemmArgsOf(args, {}, nullptr);
  if (along_rows) {
    launch.args.b_along_rows = true;
    launch.args.ldb = args.b.k_stride;
  }
  const int64_t k_bytes = launch.args.k * wide.element_bytes();
  launch.k_blocks = static_cast<int>(CeilDiv(k_bytes, kRowBytes));
  launch.whole_blocks = k_bytes % kRowBytes == 0;
  // Matrices that lie apart have a map each, like the one of the first.
  const int64_t matrices = op.table.empty() ? op.b.values.shape[0] : 1;
  if (absl::Status s = MakeMaps(wide, thin, launch.args, matrices, launch); !s.ok()) return s;
  launch.source = source;
  const int cluster = wide.multicast();
  launch.n_tiles = static_cast<int>(CeilDiv(launch.args.n, wide.rows * cluster));
  if (op.bias) {
    launch.args.bias = bias;
    launch.args.bias_is_f32 = op.bias->dtype == DType::kF32;
    launch.bias_group_bytes = op.bias->strides[0] * SizeBytes(op.bias->dtype);
  }
  direct.ctas = sms / cluster * cluster;
  return direct;
}

cudaError_t LaunchDirect(const DirectGrouped& direct, DataFault* fault, bool programmatic,
                         cudaStream_t stream) {
  DirectGroupedLaunch launch = direct.launch;
  launch.source.fault = fault;
  return direct.entry->launch(direct.config, launch, direct.ctas, programmatic, stream);
}

}  // namespace gemmd::kernels::cuda
