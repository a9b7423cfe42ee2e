#include "kernels/cuda/matmul/grouped_direct.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/grouped_op.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

// Tiles of the list that go through the weights together. Few rows a group: its own tiles. Many: as
// much of A as stays in L2 beside the weights.
constexpr int kThinBand = 2, kWideBand = 8;

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

const DirectGroupedEntry& EntryOf(DType operands) {
  return operands == DType::kF16 ? kSm90F16Grouped : kSm90Bf16Grouped;
}

std::string OperandWhyNot(const char* name, const Operand& operand, DType wanted) {
  const DType given = operand.values.dtype;
  if (given != wanted || !IsDirect(given)) {
    return StrCat(name, " is ", Text(Name(given)), "; these kernels multiply ",
                  IsDirect(wanted) ? Text(Name(wanted)) : "bf16 or f16");
  }
  if (operand.granularity != ScaleGranularity::kNone) {
    return StrCat("scales of ", name, " are ", Text(Name(operand.granularity)),
                  "; these kernels need none");
  }
  return RowsWhyNot(name, operand.values);
}

GroupWalk WalkOf(TileList list, int64_t n, int columns, int band) {
  GroupWalk walk;
  walk.list = list;
  walk.n_tiles = static_cast<int>(CeilDiv(n, columns));
  walk.band = band;
  walk.per_band = MakeDivisor(int64_t{band} * walk.n_tiles);
  walk.band_rows = MakeDivisor(band);
  return walk;
}

absl::Status MakeMaps(const GemmConfig& wide, const GemmConfig& thin, const Fp8GemmArgs& args,
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

bool IsDirect(DType operands) { return operands == DType::kBF16 || operands == DType::kF16; }

std::string_view TmaGroupedName(DType operands) {
  return IsDirect(operands) ? EntryOf(operands).name : kFp8GroupedName;
}

std::string WhyNotDirect(const GroupedMatmulOp& op) {
  const DType type = op.a.values.dtype;
  std::string why = OperandWhyNot("a", op.a, type);
  if (op.table.empty()) {
    if (why.empty()) why = OperandWhyNot("b", op.b, type);
  } else {
    for (size_t g = 0; why.empty() && g < op.table.size(); ++g) {
      why = OperandWhyNot(StrCat("weights[", g, "]").c_str(), op.table[g], type);
    }
  }
  if (why.empty()) why = ResultWhyNot(op);
  if (!why.empty()) return why;
  const Dims &a = op.a.values.shape, &b = op.b.values.shape;
  const int64_t rows = a[a.rank - 2], k = a[a.rank - 1], n = b[1];
  if (rows == 0 || n == 0 || k == 0) return "there is nothing to multiply";
  if (op.bias && n > 1 && op.bias->strides[1] != 1) {
    return StrCat("bias has a stride of ", op.bias->strides[1], "; copy it to be dense");
  }
  if (op.activation > Activation::kRelu) {
    return StrCat("activation is ", Text(Name(op.activation)), "; these kernels know relu alone");
  }
  constexpr int64_t kMostWork = int64_t{1} << 25;
  const GroupedLayout layout = LayoutOf(op, true);
  const int64_t tiles = layout.most_tiles[0] + layout.most_tiles[1];
  if (tiles > kMostWork / CeilDiv(n, EntryOf(type).wide[0].rows)) {
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
                                            const TileList* lists, const int64_t* most_tiles,
                                            int sms) {
  DirectGrouped direct;
  direct.entry = &EntryOf(op.a.values.dtype);
  direct.config = config;
  if (absl::Status s = ToStatus(direct.entry->prepare(config), "preparing a grouped kernel");
      !s.ok()) {
    return s;
  }
  const GemmConfig &wide = direct.entry->wide[config], &thin = direct.entry->thin[config];
  DirectGroupedLaunch& launch = direct.launch;
  launch.args = Fp8ArgsOf(args, {}, nullptr);
  const int64_t k_bytes = launch.args.k * wide.element_bytes();
  launch.k_blocks = static_cast<int>(CeilDiv(k_bytes, kRowBytes));
  launch.whole_blocks = k_bytes % kRowBytes == 0;
  // Matrices that lie apart have a map each, like the one of the first.
  const int64_t matrices = op.table.empty() ? op.b.values.shape[0] : 1;
  if (absl::Status s = MakeMaps(wide, thin, launch.args, matrices, launch); !s.ok()) return s;
  const int64_t n = launch.args.n;
  const int cluster = wide.multicast();
  launch.thin = WalkOf(lists[0], n, wide.rows * cluster, kThinBand);
  launch.wide = WalkOf(lists[1], n, wide.rows * cluster, kWideBand);
  if (op.bias) {
    launch.args.bias = bias;
    launch.args.bias_is_f32 = op.bias->dtype == DType::kF32;
    launch.bias_group_bytes = op.bias->strides[0] * SizeBytes(op.bias->dtype);
  }
  const int64_t tiles = most_tiles[0] * launch.thin.n_tiles + most_tiles[1] * launch.wide.n_tiles;
  direct.ctas = static_cast<int>(std::min<int64_t>(sms / cluster, tiles)) * cluster;
  return direct;
}

cudaError_t LaunchDirect(const DirectGrouped& direct, cudaStream_t stream) {
  if (direct.ctas == 0) return cudaSuccess;
  return direct.entry->launch(direct.config, direct.launch, direct.ctas, stream);
}

}  // namespace gemmd::kernels::cuda
