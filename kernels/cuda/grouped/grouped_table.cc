#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {}  // namespace

absl::Status AddTable(const GroupedMatmulOp& op, const GroupedLayout& layout, SlotAddresses slots,
                      std::byte* scratch, GroupedLaunches& launches) {
  if (op.table.empty()) return absl::OkStatus();
  TableArgs all;
  all.entries = reinterpret_cast<GroupMatrix*>(scratch + layout.table_offset);
  if (launches.any) launches.any->table = all.entries;
  if (launches.block_scaled) {
    GroupedLaunch& launch = *launches.block_scaled;
    launch.table = all.entries;
    all.like[kThinTile] = launch.thin_b_map;
    all.like[kWideTile] = launch.gemm.col_map;
    for (int kind = 0; kind < kTileLists; ++kind) {
      all.maps[kind] = reinterpret_cast<CUtensorMap*>(scratch + layout.maps_offset[kind]);
      launch.b_maps[kind] = all.maps[kind];
    }
  }
  if (launches.direct) {
    DirectGroupedLaunch& launch = launches.direct->launch;
    launch.table = all.entries;
    all.like[kThinTile] = launch.thin_b;
    all.like[kWideTile] = launch.wide_b;
    for (int kind = 0; kind < kTileLists; ++kind) {
      all.maps[kind] = reinterpret_cast<CUtensorMap*>(scratch + layout.maps_offset[kind]);
      launch.b_maps[kind] = all.maps[kind];
    }
  }
  const auto address = [&](const TensorRef& tensor) {
    return slots[tensor.slot] + tensor.offset_bytes;
  };
  const auto groups = static_cast<int32_t>(op.table.size());
  for (int32_t first = 0; first < groups; first += kTableChunk) {
    TableArgs& args = launches.tables.emplace_back(all);
    args.first = first;
    args.count = std::min(groups - first, kTableChunk);
    for (int32_t i = 0; i < args.count; ++i) {
      const Operand& matrix = op.table[first + i];
      const std::byte* values = address(matrix.values);
      // Offsets were judged; that slots start at multiples of 256 is the caller's word.
      if (layout.by_tma && reinterpret_cast<uintptr_t>(values) % kTmaBytes != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("weights[", first + i, "] lies at ", reinterpret_cast<uintptr_t>(values),
                         ", not a multiple of ", kTmaBytes, "; move it"));
      }
      args.matrices[i] = {values, matrix.scales
                                      ? reinterpret_cast<const float*>(address(*matrix.scales))
                                      : nullptr};
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::cuda
