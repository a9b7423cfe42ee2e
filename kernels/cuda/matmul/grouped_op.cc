#include "kernels/cuda/matmul/grouped_op.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/sm90/k_split.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kAlignment = 256;  // of each part of the scratch
// Groups of up to so many rows have the weights on the row side. Above, their tiles of 64 rows
// would fetch the weights more often than those of 128.
constexpr int kMostThinRows = 64;
constexpr int64_t kTmaBytes = 16;
// Tiles of the list that go through the weights together. Few rows a group: its own tiles. Many: as
// much of A as stays in L2 beside the weights.
constexpr int kBands[kTileLists] = {2, 16};

static_assert(kMostGroups == kMaxGroups);
static_assert(static_cast<int>(GroupLayoutType::kEnds) == static_cast<int>(GroupLayout::kEnds));
static_assert(static_cast<int>(GroupLayoutType::kRowIds) == static_cast<int>(GroupLayout::kRowIds));

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t RoundUp(int64_t value, int64_t step) { return CeilDiv(value, step) * step; }

struct Extents {
  explicit Extents(const GroupedMatmulOp& op) {
    const Dims& a = op.a.values.shape;
    items = a.rank == 3 ? a[0] : 1;
    rows = a[a.rank - 2];
    k = a[a.rank - 1];
    groups = op.b.values.shape[0];
    n = op.b.values.shape[1];
  }
  int64_t items, rows, n, k, groups;
};

const GemmConfig& ConfigOf(int config) { return kSm90Fp8Grouped.configs[config]; }

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

// Tiles of `tile` rows that groups of these extents can have together.
int64_t MostTiles(const Extents& extents, bool counts, int64_t most_rows, int64_t tile) {
  const int64_t of_group = CeilDiv(std::min(extents.rows, most_rows), tile);
  const int64_t by_group = extents.groups * of_group;
  return counts ? by_group : std::min(by_group, extents.rows / tile + extents.groups);
}

// The slots, and one more with the product.
std::vector<std::byte*> WithProduct(SlotAddresses slots, std::byte* product) {
  std::vector<std::byte*> all(slots.begin(), slots.end());
  all.push_back(product);
  return all;
}

TensorRef ProductOf(const GroupedMatmulOp& op, const GroupedLayout& layout, int slot) {
  TensorRef product{.slot = slot, .dtype = layout.product, .shape = op.d.shape};
  product.shape[product.shape.rank - 1] = op.b.values.shape[1];
  product.strides = RowMajorStrides(product.shape);
  return product;
}

TensorView ValuesOf(const GemmConfig& config, const void* address, int64_t rows, int64_t k,
                    int64_t batch, int64_t row_stride, int64_t batch_stride, int box_rows) {
  TensorView view = {.address = address,
                     .cols = k,
                     .rows = rows,
                     .batch = batch,
                     .row_stride_bytes = row_stride,
                     .batch_stride_bytes = batch_stride,
                     .box_cols = kBlockK,
                     .box_rows = box_rows,
                     .box_planes = config.k_blocks};
  if (config.k_blocks > 1) {
    view.cols = kBlockK;
    view.planes = CeilDiv(k, kBlockK);
    view.plane_stride_bytes = kBlockK;
  }
  return view;
}

absl::StatusOr<GroupedLaunch> PrepareList(const GemmConfig& config, const Fp8GemmArgs& args,
                                          int64_t groups, TileList list, int band) {
  const int64_t k_blocks = CeilDiv(args.k, kBlockK);
  // Of the column side a plane at a time, of as many rows as there are.
  const int a_box = config.skinny() ? kRowsABox : config.block_m(), b_box = config.block_n();
  TensorView a =
      ValuesOf(config, args.a, args.m, args.k, args.batch, args.lda, args.a_batch, a_box);
  if (config.skinny()) a.box_planes = 1;
  const TensorView b =
      ValuesOf(config, args.b, args.n, args.k, groups, args.ldb, args.b_batch, b_box);
  const TensorView scales = {.address = args.a_scales,
                             .cols = args.m,
                             .rows = 1,
                             .planes = k_blocks,
                             .batch = args.batch,
                             .plane_stride_bytes = args.a_scales_ld * 4,
                             .batch_stride_bytes = args.a_scales_batch * 4,
                             .box_cols = config.a_scale_rows(),
                             .box_rows = 1,
                             .box_planes = config.k_blocks};
  GroupedLaunch launch;
  for (auto [map, made] : {std::pair(&launch.gemm.row_map, ValuesMap(config.skinny() ? b : a)),
                           std::pair(&launch.gemm.col_map, ValuesMap(config.skinny() ? a : b)),
                           std::pair(&launch.gemm.scale_map, ScalesMap(scales))}) {
    if (!made.ok()) return made.status();
    *map = *made;
  }
  launch.gemm.args = args;
  launch.gemm.k_blocks = static_cast<int>(k_blocks);
  launch.gemm.split = SplitOf(config, 1, CeilDiv(k_blocks, config.k_blocks));
  launch.gemm.programmatic = true;
  launch.list = list;
  launch.n_tiles = static_cast<int>(CeilDiv(args.n, config.block_n()));
  launch.band = band;
  launch.per_band = MakeDivisor(int64_t{band} * launch.n_tiles);
  launch.band_rows = MakeDivisor(band);
  return launch;
}

// The kernels that apply the gate: for groups of few rows, and, where some may have them, of many.
absl::Status PrepareGates(const GroupedMatmulOp& op, const Fp8GemmArgs& args,
                          const GatedArgs& gated, const DirectoryArgs& directory, int sms,
                          std::vector<FusedGate>& gates) {
  const Extents extents(op);
  GateGroups groups = {.starts = directory.starts,
                       .sizes = directory.sizes,
                       .groups = directory.groups,
                       .items = op.layout == GroupLayout::kCounts};
  for (const int config : {kGateWideConfig, kGateThinConfig}) {  // those of many take longer
    const int thin_rows = kSm90Fp8Gate.configs[kGateThinConfig].block_m();
    groups.least_rows = config == kGateWideConfig ? thin_rows : 0;
    groups.most_rows = config == kGateWideConfig ? directory.rows : thin_rows;
    if (extents.rows <= groups.least_rows) continue;
    const int64_t tiles =
        MostTiles(extents, groups.items, groups.most_rows, kSm90Fp8Gate.configs[config].block_m());
    auto gate = PrepareGate(config, args, gated, groups, extents.groups, tiles, sms);
    if (!gate.ok()) return gate.status();
    gates.push_back(*std::move(gate));
  }
  return absl::OkStatus();
}

// What all groups share: their place in d, bias and scales comes with the tile.
AnyGroupedArgs AnyOf(const GroupedMatmulOp& op, const AnyGemmArgs& gemm, SlotAddresses slots) {
  AnyGroupedArgs any;
  any.gemm = gemm;
  if (op.bias) {
    any.gemm.bias = slots[op.bias->slot] + op.bias->offset_bytes;
    any.gemm.bias_stride = op.bias->strides[1];
    any.gemm.bias_type =
        op.bias->dtype == DType::kF32 ? ElementType::kF32 : static_cast<ElementType>(op.d.dtype);
    any.bias_group = op.bias->strides[0];
  }
  return any;
}

// Rows that are multiplied where `active` groups have as many each: of more than a thin tile whole
// tiles.
double PaddedRows(double rows, double active) {
  const double each = active > 0 ? rows / active : 0;
  const int tile = ConfigOf(kWideConfig).block_m();
  return each <= kMostThinRows ? rows : active * std::ceil(each / tile) * tile;
}

// b, or each matrix of the table.
std::string MatricesWhyNot(const GroupedMatmulOp& op) {
  if (op.table.empty()) return OperandWhyNot("b", op.b, ScaleGranularity::kBlock128x128);
  std::string why = OperandWhyNot("weights[0]", op.table[0], ScaleGranularity::kBlock128x128);
  for (size_t g = 1; why.empty() && g < op.table.size(); ++g) {  // of the same strides
    const int64_t offset = op.table[g].values.offset_bytes;
    if (offset % kTmaBytes == 0) continue;
    why = StrCat("weights[", g, "] starts at byte ", offset, ", not a multiple of ", kTmaBytes,
                 "; place it there");
  }
  return why;
}

// Makes room for a table of the op's matrices.
void AddTableParts(const GroupedMatmulOp& op, bool fp8, GroupedLayout& layout, Parts& parts) {
  const auto groups = static_cast<int64_t>(op.table.size());
  layout.table_offset = parts.Add(groups * static_cast<int64_t>(sizeof(GroupMatrix)));
  for (int list = 0; fp8 && list < (layout.may_be_wide ? kTileLists : 1); ++list) {
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

std::string ResultWhyNot(const GroupedMatmulOp& op) {
  if (op.gate) return "";  // the product lies in scratch memory
  const Extents extents(op);
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

std::string OperandWhyNot(const char* name, const Operand& operand, ScaleGranularity wanted) {
  if (operand.values.dtype != DType::kE4M3) {
    return StrCat(name, " is ", Text(Name(operand.values.dtype)), "; these kernels multiply e4m3");
  }
  if (operand.granularity != wanted) {
    return StrCat("scales of ", name, " are ", Text(Name(operand.granularity)),
                  "; these kernels need ", Text(Name(wanted)));
  }
  return RowsWhyNot(name, operand.values);
}

std::string WhyNotFused(const GroupedMatmulOp& op) {
  if (!op.table.empty()) return "matrices lie apart; the fused gate reads them from one tensor";
  return WhyNotFused(*op.gate, op.b.values.shape[1], op.d);
}

std::string WhyNotFp8(const GroupedMatmulOp& op) {
  const Extents extents(op);
  std::string why = OperandWhyNot("a", op.a, ScaleGranularity::kBlock1x128);
  if (why.empty()) why = MatricesWhyNot(op);
  if (why.empty()) why = ResultWhyNot(op);
  if (!why.empty()) return why;
  if (extents.rows == 0 || extents.n == 0 || extents.k == 0) return "there is nothing to multiply";
  const TensorRef& scales = *op.b.scales;
  if (scales.shape[2] > 1 && scales.strides[2] != 1) {
    return "scales of b are not contiguous along k; copy them";
  }
  if (op.bias) return "it has a bias; these kernels add none";
  if (op.activation > Activation::kRelu) {
    return StrCat("activation is ", Text(Name(op.activation)), "; these kernels know relu alone");
  }
  constexpr int64_t kMostWork = int64_t{1} << 25;
  const GroupedLayout layout = LayoutOf(op, true);
  for (const int64_t tiles : layout.most_tiles) {
    const int64_t n_tiles = CeilDiv(extents.n, ConfigOf(kThinConfig).block_n());
    if (tiles > kMostWork / n_tiles) {
      return StrCat("groups may have more than ", kMostWork, " tiles; split the op");
    }
  }
  return "";
}

std::string WhyNotTma(const GroupedMatmulOp& op) {
  return IsDirect(op.a.values.dtype) ? WhyNotDirect(op) : WhyNotFp8(op);
}

GroupedLayout LayoutOf(const GroupedMatmulOp& op, bool fp8, bool fused) {
  const Extents extents(op);
  const bool counts = op.layout == GroupLayout::kCounts;
  GroupedLayout layout;
  layout.fp8 = fp8;
  layout.fused = fused;
  Parts parts;
  if (fp8) {
    if (IsDirect(op.a.values.dtype)) {
      layout.direct_config = DirectConfigOf(op);
    } else {
      int slots = 0;
      ForEachTensor(Op(op), [&](const TensorRef& tensor, Access) {
        slots = std::max(slots, tensor.slot + 1);
      });
      const std::vector<std::byte*> somewhere(slots,
                                              reinterpret_cast<std::byte*>(uintptr_t{kAlignment}));
      layout.copies = CopiesOfA(ArgsOf(op, somewhere));
      parts.Add(layout.copies.scratch_bytes);
    }
    if (extents.k % kBlockK != 0) layout.thin_config = kThinAnyKConfig;
    layout.may_be_wide = extents.rows > kMostThinRows;
    layout.most_tiles[0] =
        MostTiles(extents, counts, kMostThinRows, ConfigOf(layout.thin_config).block_m());
    if (layout.may_be_wide) {
      layout.most_tiles[1] =
          MostTiles(extents, counts, extents.rows, ConfigOf(kWideConfig).block_m());
    }
  } else {
    layout.most_tiles[0] = MostTiles(extents, counts, extents.rows, kAnyGroupedRows);
  }
  if (op.gate) {
    layout.starts_offset = parts.Add(2 * extents.groups * static_cast<int64_t>(sizeof(int32_t)));
  }
  if (fused) {
    layout.scratch_bytes = parts.end();
    return layout;
  }
  layout.counts_offset = parts.Add(kTileLists * sizeof(int32_t));
  for (int list = 0; list < kTileLists; ++list) {
    layout.tiles_offset[list] =
        parts.Add(layout.most_tiles[list] * static_cast<int64_t>(sizeof(GroupTile)));
  }
  if (!op.table.empty()) AddTableParts(op, fp8, layout, parts);
  if (op.gate) {
    layout.product = op.d.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
    layout.owners_offset =
        parts.Add(extents.items * extents.rows * static_cast<int64_t>(sizeof(int32_t)));
    const double bytes = 1.0 * static_cast<double>(extents.items * extents.rows) *
                         static_cast<double>(extents.n) * SizeBytes(layout.product);
    // Beyond any limit: the caller refuses it.
    layout.product_offset =
        parts.Add(bytes > 1e15 ? int64_t{1} << 50 : static_cast<int64_t>(bytes));
  }
  layout.scratch_bytes = parts.end();
  return layout;
}

double GroupedSeconds(const GroupedMatmulOp& op, bool fp8, double memory_bytes_per_s, bool fused) {
  // Of this share of a peak of 1.98 PFLOP/s and of the memory's rate; sm90_any_gemm's as measured.
  constexpr double kFp8Flops = 1.3e15, kAnyFlops = 6e13, kMemoryShare = 0.8;
  constexpr double kLaunchesSeconds = 8e-6;
  const Extents extents(op);
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : 4e12;
  const double rows = static_cast<double>(ExpectedRows(op));
  const double active = std::min(static_cast<double>(extents.groups), rows);
  const double columns = static_cast<double>(extents.n), k = static_cast<double>(extents.k);
  const double bytes = active * columns * k * SizeBytes(op.b.values.dtype) +
                       rows * (k * SizeBytes(op.a.values.dtype) + columns * SizeBytes(op.d.dtype));
  const double flops = 2 * PaddedRows(rows, active) * columns * k;
  const double tma_flops = IsDirect(op.a.values.dtype) ? kDirectFlops : kFp8Flops;
  const double gate = op.gate && !fused ? rows * columns * 5 / (rate * kMemoryShare) : 0;
  return kLaunchesSeconds + gate +
         std::max(flops / (fp8 ? tma_flops : kAnyFlops), bytes / (rate * kMemoryShare));
}

absl::StatusOr<GroupedLaunches> PrepareGrouped(const GroupedMatmulOp& op,
                                               const GroupedLayout& layout, SlotAddresses slots,
                                               std::byte* scratch, const DeviceTraits& device) {
  const Extents extents(op);
  GroupedLaunches launches;
  DirectoryArgs& directory = launches.directory;
  directory.index =
      reinterpret_cast<const int32_t*>(slots[op.groups.slot] + op.groups.offset_bytes);
  directory.layout = static_cast<GroupLayoutType>(op.layout);
  directory.groups = static_cast<int32_t>(extents.groups);
  directory.rows = static_cast<int32_t>(extents.rows);
  directory.alignment = static_cast<int32_t>(op.alignment);
  directory.most_thin_rows = layout.fp8 ? kMostThinRows : static_cast<int32_t>(extents.rows);
  if (op.gate) {
    directory.starts = reinterpret_cast<int32_t*>(scratch + layout.starts_offset);
    directory.sizes = directory.starts + extents.groups;
  }
  if (layout.fused) {
    const TensorRef product = ProductOf(op, layout, op.d.slot);
    GroupedMatmulOp plain = op;
    plain.d = product;
    const AnyGemmArgs args = ArgsOf(plain, slots);
    launches.copy = CopyOfA(args, layout.copies, scratch);
    if (launches.copy) launches.copy->programmatic = true;
    const absl::Status ready =
        PrepareGates(op, Fp8ArgsOf(args, layout.copies, scratch),
                     ArgsOf(GatedOf(*op.gate, product, op.d, op.d_scales), slots), directory,
                     device.sms, launches.gates);
    if (!ready.ok()) return ready;
    return launches;
  }
  auto* const counts = reinterpret_cast<int32_t*>(scratch + layout.counts_offset);
  for (int list = 0; list < (layout.may_be_wide ? kTileLists : 1); ++list) {
    directory.lists[list] = {counts + list,
                             reinterpret_cast<GroupTile*>(scratch + layout.tiles_offset[list])};
  }
  directory.tile_rows[0] = layout.fp8 ? ConfigOf(layout.thin_config).block_m() : kAnyGroupedRows;
  directory.tile_rows[1] = ConfigOf(kWideConfig).block_m();

  GroupedMatmulOp product = op;
  std::vector<std::byte*> with_product(slots.begin(), slots.end());
  if (op.gate) {
    with_product = WithProduct(slots, scratch + layout.product_offset);
    product.d = ProductOf(op, layout, static_cast<int>(slots.size()));
    launches.gated = ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), with_product);
    OwnersArgs& owners = launches.owners.emplace();
    owners.starts = directory.starts;
    owners.sizes = directory.sizes;
    owners.groups = directory.groups;
    owners.counts = op.layout == GroupLayout::kCounts;
    owners.rows = directory.rows;
    owners.all_rows = extents.items * extents.rows;
    owners.owners = reinterpret_cast<int32_t*>(scratch + layout.owners_offset);
    launches.gated->owners = owners.owners;
    launches.gated->programmatic = true;
  }
  const AnyGemmArgs args = ArgsOf(product, with_product);
  if (!layout.fp8) {
    launches.any = AnyOf(product, args, with_product);
    launches.any->list = directory.lists[0];
    launches.any->most_tiles = layout.most_tiles[0];
    if (absl::Status s = AddTable(op, layout, slots, scratch, launches); !s.ok()) return s;
    return launches;
  }
  if (IsDirect(op.a.values.dtype)) {
    const void* const bias =
        op.bias ? with_product[op.bias->slot] + op.bias->offset_bytes : nullptr;
    auto direct = PrepareDirect(op, layout.direct_config, args, bias, directory.lists,
                                layout.most_tiles, device.sms);
    if (!direct.ok()) return direct.status();
    directory.tile_rows[1] = direct->wide_rows();
    directory.even = true;
    launches.direct = *std::move(direct);
    if (absl::Status s = AddTable(op, layout, slots, scratch, launches); !s.ok()) return s;
    return launches;
  }
  launches.copy = CopyOfA(args, layout.copies, scratch);
  if (launches.copy) launches.copy->programmatic = true;
  const Fp8GemmArgs fp8 = Fp8ArgsOf(args, layout.copies, scratch);
  launches.configs[0] = layout.thin_config;
  for (int list = 0; list < kTileLists; ++list) {
    if (directory.lists[list].count == nullptr) continue;
    const int config = launches.configs[list];
    const absl::Status ready =
        ToStatus(kSm90Fp8Grouped.prepare(config), "preparing a grouped kernel");
    if (!ready.ok()) return ready;
    // Matrices that lie apart have a map each, like the one of the first.
    const int64_t matrices = op.table.empty() ? extents.groups : 1;
    auto launch = PrepareList(ConfigOf(config), fp8, matrices, directory.lists[list], kBands[list]);
    if (!launch.ok()) return launch.status();
    launches.ctas[list] =
        static_cast<int>(std::min<int64_t>(device.sms, layout.most_tiles[list] * launch->n_tiles));
    launches.lists[list] = *launch;
  }
  if (absl::Status s = AddTable(op, layout, slots, scratch, launches); !s.ok()) return s;
  return launches;
}

absl::Status QueueGrouped(const GroupedLaunches& launches, DataFault* fault, bool overlap,
                          cudaStream_t stream) {
  DirectoryArgs directory = launches.directory;
  directory.fault = fault;
  directory.programmatic = overlap;
  cudaError_t code = LaunchDirectory(directory, stream);
  for (size_t i = 0; code == cudaSuccess && i < launches.tables.size(); ++i) {
    code = LaunchTable(launches.tables[i], stream);
  }
  if (code == cudaSuccess && launches.copy) code = LaunchScaleLayout(*launches.copy, stream);
  for (const FusedGate& gate : launches.gates) {
    if (code == cudaSuccess) code = LaunchGate(gate, true, stream);
  }
  if (code == cudaSuccess && launches.any) code = LaunchAnyGrouped(*launches.any, stream);
  if (code == cudaSuccess && launches.direct) code = LaunchDirect(*launches.direct, stream);
  // Those of many rows first: they take longer.
  for (int list = kTileLists - 1; list >= 0; --list) {
    if (code != cudaSuccess || !launches.lists[list] || launches.ctas[list] == 0) continue;
    code = kSm90Fp8Grouped.launch(launches.configs[list], *launches.lists[list],
                                  launches.ctas[list], stream);
  }
  if (code == cudaSuccess && launches.owners) code = LaunchOwners(*launches.owners, stream);
  if (code == cudaSuccess && launches.gated) code = LaunchGated(*launches.gated, stream);
  return ToStatus(code, "launching a grouped matmul");
}

}  // namespace gemmd::kernels::cuda
