#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kTmaBytes = 16;

}  // namespace

absl::Status AddTable(const GroupedMatmulOp& op, const GroupedLayout& layout, SlotAddresses slots,
                      std::byte* scratch, GroupedLaunches& launches) {
  if (op.table.empty()) return absl::OkStatus();
  TableArgs all;
  all.entries = reinterpret_cast<GroupMatrix*>(scratch + layout.table_offset);
  if (launches.any) launches.any->table = all.entries;
  for (int list = 0; list < kTileLists; ++list) {
    if (!launches.lists[list]) continue;
    GroupedLaunch& launch = *launches.lists[list];
    const bool skinny = kSm90Fp8Grouped.configs[launches.configs[list]].skinny();
    all.maps[list] = reinterpret_cast<CUtensorMap*>(scratch + layout.maps_offset[list]);
    all.like[list] = skinny ? launch.gemm.row_map : launch.gemm.col_map;
    launch.table = all.entries;
    launch.b_maps = all.maps[list];
  }
  if (launches.direct) {
    DirectGroupedLaunch& launch = launches.direct->launch;
    for (const auto& [list, walk, map] :
         {std::tuple(0, &launch.thin, &launch.thin_b), {1, &launch.wide, &launch.wide_b}}) {
      if (walk->list.count == nullptr) continue;
      all.maps[list] = reinterpret_cast<CUtensorMap*>(scratch + layout.maps_offset[list]);
      all.like[list] = *map;
      walk->b_maps = all.maps[list];
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
      if (layout.fp8 && reinterpret_cast<uintptr_t>(values) % kTmaBytes != 0) {
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
