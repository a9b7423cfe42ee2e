#include "kernels/cuda/grouped/grouped_op.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/grouped/grouped_extents.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/tensor_map.h"

namespace gemmd::kernels::cuda {
namespace {

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

// Boxes of `box_rows` rows of a k block. Blocks are planes where k is whole ones.
TensorView ValuesOf(const void* address, int64_t rows, int64_t k, int64_t batch, int64_t row_stride,
                    int64_t batch_stride, int box_rows) {
  TensorView view = {.address = address,
                     .cols = k,
                     .rows = rows,
                     .batch = batch,
                     .row_stride_bytes = row_stride,
                     .batch_stride_bytes = batch_stride,
                     .box_cols = kBlockK,
                     .box_rows = box_rows};
  if (k % kBlockK == 0) {
    view.cols = kBlockK;
    view.planes = k / kBlockK;
    view.plane_stride_bytes = kBlockK;
  }
  return view;
}

const GroupedFamilyEntry& RoundingFamilyOf(const GroupedLayout& layout, DType type) {
  const bool int8 = type == DType::kI8;  // none of which is fused
  switch (layout.rows) {
    case RowsKernel::kPairs:
      return int8 ? kSm90I8BlockPairs : kSm90Fp8Pairs;
    case RowsKernel::kRests:
      return layout.fused ? kSm90Fp8PairsGate : kSm90Fp8PairsRest;
    case RowsKernel::kUnits:
      return int8 ? kSm90I8BlockRagged : kSm90Fp8Ragged;
    default:
      return int8 ? kSm90I8BlockGrouped : layout.fused ? kSm90Fp8GroupedGate : kSm90Fp8Grouped;
  }
}

const GroupedFamilyEntry& FamilyOf(const GroupedLayout& layout, const GroupedMatmulOp& op) {
  const GroupedFamilyEntry& rounding = RoundingFamilyOf(layout, op.a.values.dtype);
  return layout.fused || !NeedsFinish(op) ? rounding : *rounding.finishing;
}

// Every unit of 16 bytes is in d or outside.
bool StoresByCopy(const GemmArgs& args) {
  return args.n % 8 == 0 && args.ldd % 8 == 0 && args.d_batch % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.d) % 16 == 0;
}

// In registers, which wide tiles have room for. A row's bits are the same as by a thin tile: there
// alpha is rounded in front of a bias, and here it is not.
bool Adjusts(const GemmArgs& args) {
  return OnlyAdjusts(args) && (args.alpha == 1.0f || args.bias == nullptr);
}

absl::StatusOr<GroupedLaunch> PrepareTiles(const GroupedFamilyEntry& family, const GemmArgs& args,
                                           int64_t matrices) {
  const absl::Status ready = ToStatus(family.prepare(), "preparing a grouped kernel");
  if (!ready.ok()) return ready;
  const GemmConfig& thin = family.configs[kThinTile];
  const GemmConfig& wide = family.configs[kWideTile];
  const int64_t k_blocks = CeilDiv(args.k, kBlockK);
  const auto a = [&](int box_rows) {
    return ValuesMap(
        ValuesOf(args.a, args.m, args.k, args.batch, args.lda, args.a_batch, box_rows));
  };
  const auto thin_a = [&](int box_rows) {
    TensorView view =
        ValuesOf(args.a, args.m, args.k, args.batch, args.lda, args.a_batch, box_rows);
    if (args.k % kBlockK == 0) view.box_planes = thin.k_blocks;
    view.l2_bytes = 128;
    return ValuesMap(view);
  };
  const auto b = [&](int box_rows, bool once) {
    TensorView view = ValuesOf(args.b, args.n, args.k, matrices, args.ldb, args.b_batch, box_rows);
    if (once) view.l2_bytes = 128;
    return ValuesMap(view);
  };
  const auto scales = [&](const GemmConfig& config) {
    return ScalesMap({.address = args.a_scales,
                      .cols = args.m,
                      .rows = 1,
                      .planes = k_blocks,
                      .batch = args.batch,
                      .plane_stride_bytes = args.a_scales_ld * 4,
                      .batch_stride_bytes = args.a_scales_batch * 4,
                      .box_cols = config.a_scale_rows(),
                      .box_rows = 1,
                      .box_planes = config.k_blocks});
  };
  GroupedLaunch launch;
  for (auto [map, made] : {std::pair(&launch.gemm.row_map, a(family.a_box_rows)),
                           std::pair(&launch.gemm.col_map, b(family.b_box_rows, false)),
                           std::pair(&launch.gemm.scale_map, scales(wide)),
                           std::pair(&launch.a_rows_map, a(kRowsABox)),
                           std::pair(&launch.thin_b_map, b(thin.b_box(), thin.thin())),
                           std::pair(&launch.thin_scale_map, scales(thin))}) {
    if (!made.ok()) return made.status();
    *map = *made;
  }
  for (int i = 0; thin.thin() && i < kThinRows / kRowsABox; ++i) {
    const absl::StatusOr<CUtensorMap> made = thin_a((i + 1) * kRowsABox);
    if (!made.ok()) return made.status();
    launch.thin_a_maps[i] = *made;
  }
  if (wide.stores_tile && StoresByCopy(args)) {
    const absl::StatusOr<CUtensorMap> made = StoreMap({.address = args.d,
                                                       .cols = args.n,
                                                       .rows = args.m,
                                                       .batch = args.batch,
                                                       .row_stride_bytes = args.ldd * 2,
                                                       .batch_stride_bytes = args.d_batch * 2,
                                                       .box_cols = wide.store_cols(),
                                                       .box_rows = kStoreRows});
    if (!made.ok()) return made.status();
    launch.gemm.store_map = *made;
    launch.gemm.stores_by_copy = true;
  }
  launch.gemm.args = args;
  launch.gemm.k_blocks = static_cast<int>(k_blocks);
  launch.n_tiles = static_cast<int>(CeilDiv(args.n, family.step_n));
  launch.any_k = args.k % kBlockK != 0;
  return launch;
}

// k blocks of 128 rows of the weights that each CTA reads first with L2's normal policy. All of
// them together are twice what L2 holds: from some ten times as many on, what this clears it of is
// worth more than what later reads find there.
int ClearingBlocks(const GroupedExtents& extents) {
  constexpr int kBlocks = 48;  // 104 MB of 132 CTAs
  constexpr int64_t kLeastWeights = int64_t{512} << 20;
  return extents.groups * extents.n * extents.k >= kLeastWeights ? kBlocks : 0;
}

// What all groups share: their place in d, bias and scales comes with the tile.
AnyGroupedArgs AnyOf(const GroupedMatmulOp& op, const AnyGemmArgs& gemm, SlotAddresses slots) {
  AnyGroupedArgs any;
  any.gemm = gemm;
  if (op.bias) {
    any.gemm.bias = slots[op.bias->slot] + op.bias->offset_bytes;
    any.gemm.bias_stride = op.bias->strides[1];
    any.gemm.bias_type = static_cast<ElementType>(op.bias->dtype);
    any.bias_group = op.bias->strides[0];
  }
  return any;
}

}  // namespace

absl::StatusOr<GroupedLaunches> PrepareGrouped(const GroupedMatmulOp& op,
                                               const GroupedLayout& layout, SlotAddresses slots,
                                               std::byte* scratch, const DeviceTraits& device) {
  const GroupedExtents extents(op);
  const bool counts = op.layout == GroupLayout::kCounts;
  GroupedLaunches launches;
  DirectoryArgs directory;
  directory.index =
      reinterpret_cast<const int32_t*>(slots[op.groups.slot] + op.groups.offset_bytes);
  directory.layout = static_cast<GroupLayoutType>(op.layout);
  directory.groups = static_cast<int32_t>(extents.groups);
  directory.rows = static_cast<int32_t>(extents.rows);
  directory.alignment = static_cast<int32_t>(op.alignment);
  if (layout.makes_rows) {
    directory.starts = reinterpret_cast<int32_t*>(scratch + layout.starts_offset);
    directory.sizes = directory.starts + extents.groups;
  }
  if (!layout.by_tma) {
    directory.most_thin_rows = static_cast<int32_t>(extents.rows);
    directory.tile_rows[0] = kAnyGroupedRows;
    directory.lists[0] = {reinterpret_cast<int32_t*>(scratch + layout.counts_offset),
                          reinterpret_cast<GroupTile*>(scratch + layout.tiles_offset[0])};
  }
  if (layout.makes_rows || !layout.by_tma) launches.directory = directory;
  GroupedMatmulOp product = op;
  std::vector<std::byte*> with_product(slots.begin(), slots.end());
  if (layout.fused) {
    product.d = ProductOf(op, layout, op.d.slot);  // of its extents alone
  } else if (op.gate) {
    with_product = WithProduct(slots, scratch + layout.product_offset);
    product.d = ProductOf(op, layout, static_cast<int>(slots.size()));
    launches.gated = ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), with_product);
    launches.gated->programmatic = true;
  }
  if (launches.gated && layout.by_tma && op.layout == GroupLayout::kOffsets) {
    launches.gated->range_begin = directory.index;
    launches.gated->range_end = directory.index + extents.groups;
    // The kernels for block scales let the gate start once they have waited for what wrote the
    // offsets.
    launches.gated->range_first = !IsDirect(op.a);
  } else if (launches.gated) {
    OwnersArgs& owners = launches.owners.emplace();
    owners.starts = directory.starts;
    owners.sizes = directory.sizes;
    owners.groups = directory.groups;
    owners.counts = counts;
    owners.rows = directory.rows;
    owners.all_rows = extents.items * extents.rows;
    owners.owners = reinterpret_cast<int32_t*>(scratch + layout.owners_offset);
    launches.gated->owners = owners.owners;
  }
  const GroupSource source = {.index = layout.makes_rows ? nullptr : directory.index,
                              .starts = directory.starts,
                              .sizes = directory.sizes,
                              .groups = directory.groups,
                              .rows = directory.rows,
                              .items = counts};
  const AnyGemmArgs args = ArgsOf(product, with_product);
  const void* const bias = op.bias ? with_product[op.bias->slot] + op.bias->offset_bytes : nullptr;
  if (!layout.by_tma) {
    launches.any = AnyOf(product, args, with_product);
    launches.any->list = directory.lists[0];
    launches.any->most_tiles = layout.most_tiles[0];
  } else if (IsDirect(op.a)) {
    auto direct = PrepareDirect(op, layout.direct_config, args, bias, source, device.sms);
    if (!direct.ok()) return direct.status();
    launches.direct = *std::move(direct);
  } else {
    launches.copy = CopyOfA(args, layout.copies, scratch);
    const GroupedFamilyEntry& family = FamilyOf(layout, op);
    GemmArgs gemm = GemmArgsOf(args, layout.copies, scratch);
    if (op.bias) {
      gemm.bias = bias;
      gemm.bias_is_f32 = op.bias->dtype == DType::kF32;
    }
    // Matrices that lie apart have a map each, like the one of the first.
    auto launch = PrepareTiles(family, gemm, op.table.empty() ? extents.groups : 1);
    if (!launch.ok()) return launch.status();
    launch->gemm.adjusts = Adjusts(gemm);
    if (op.bias) launch->bias_group_bytes = op.bias->strides[0] * SizeBytes(op.bias->dtype);
    launches.family = &family;
    if (layout.fused) {
      launch->gated = ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), slots);
      launch->period_tiles = MakeDivisor(launch->gated.period / kGateCols);
    }
    launch->source = source;
    launch->clearing_blocks = ClearingBlocks(extents);
    launch->tickets = reinterpret_cast<TileTickets*>(scratch - kScratchHead);
    launches.block_scaled = *launch;
    launches.ctas = device.sms;
  }
  if (absl::Status s = AddTable(op, layout, slots, scratch, launches); !s.ok()) return s;
  return launches;
}

absl::Status QueueGrouped(const GroupedLaunches& launches, DataFault* fault, bool overlap,
                          cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  bool behind = overlap;  // kernels behind the first one start under its end
  const auto queue = [&](auto&& launch) {
    if (code == cudaSuccess) code = launch(std::exchange(behind, true));
  };
  if (launches.directory) {
    queue([&, args = *launches.directory](bool programmatic) mutable {
      args.fault = fault;
      args.programmatic = programmatic;
      return LaunchDirectory(args, stream);
    });
  }
  for (const TableArgs& table : launches.tables) {
    queue([&](bool programmatic) { return LaunchTable(table, programmatic, stream); });
  }
  if (launches.copy) {
    queue([&, args = *launches.copy](bool programmatic) mutable {
      args.programmatic = programmatic;
      return LaunchScaleLayout(args, stream);
    });
  }
  if (launches.any) queue([&](bool) { return LaunchAnyGrouped(*launches.any, stream); });
  if (launches.block_scaled) {
    queue([&, launch = *launches.block_scaled](bool programmatic) mutable {
      launch.source.fault = fault;
      return launches.family->launch(launch, launches.ctas, programmatic, stream);
    });
  }
  if (launches.direct) {
    queue([&](bool programmatic) {
      return LaunchDirect(*launches.direct, fault, programmatic, stream);
    });
  }
  if (launches.owners) queue([&](bool) { return LaunchOwners(*launches.owners, stream); });
  if (launches.gated) queue([&](bool) { return LaunchGated(*launches.gated, stream); });
  return ToStatus(code, "launching a grouped matmul");
}

}  // namespace gemmd::kernels::cuda
