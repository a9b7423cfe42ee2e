// The extents of a grouped matmul, and how many tiles its groups can have.

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/op.h"

namespace gemmd::kernels::cuda {

struct GroupedExtents {
  explicit GroupedExtents(const GroupedMatmulOp& op) {
    const Dims& a = op.a.values.shape;
    items = a.rank == 3 ? a[0] : 1;
    rows = a[a.rank - 2];
    k = a[a.rank - 1];
    groups = op.b.values.shape[0];
    n = op.b.values.shape[1];
  }
  int64_t items, rows, n, k, groups;
};

// Tiles of `tile` rows that groups of these extents can have together, of those with no more than
// `most_rows`. `counts`: each group has an item of its own.
inline int64_t MostTiles(const GroupedExtents& extents, bool counts, int64_t most_rows,
                         int64_t tile) {
  const int64_t of_group = (std::min(extents.rows, most_rows) + tile - 1) / tile;
  const int64_t by_group = extents.groups * of_group;
  return counts ? by_group : std::min(by_group, extents.rows / tile + extents.groups);
}

}  // namespace gemmd::kernels::cuda
