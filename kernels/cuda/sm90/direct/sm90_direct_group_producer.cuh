// The producer warp of a grouped matmul in BF16 or FP16: a ring's stages for wide tiles, then for
// thin ones.

#pragma once

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/along_rows/sm90_along_rows.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_walk.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Rows of A that a tile multiplies, those behind its end included: whole boxes of its map.
template <int kBox>
__device__ __forceinline__ int BoxesOf(const GroupTile& tile, int most) {
  return (min(tile.row_end - tile.row0, most) + kBox - 1) / kBox;
}

// A group's matrix: by a map of all of them, or by one of its own, of which the copy engine is told
// when its group comes first: it was made just now.
template <bool kTable>
struct GroupMaps {
  const CUtensorMap* all;
  const CUtensorMap* each;
  int known = -1;

  struct Matrix {
    const CUtensorMap* map;
    int item;
  };
  __device__ __forceinline__ Matrix Of(int group) {
    if constexpr (!kTable) return {all, group};
    if (group != known) ptx::AcquireTensorMap(each + group);
    known = group;
    return {each + group, 0};
  }
};

// C describes a wide tile, whose row side the weights are all the same, T a thin one.
template <GemmConfig C, GemmConfig T, bool kTable>
struct GroupProducer {
  const DirectGroupedLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  RingPosition<C.stages> at;

  // A stage of a wide tile: one k block, of A the boxes that are this CTA's to fetch.
  __device__ __forceinline__ void LoadWide(const GroupStop& stop, const CUtensorMap* b, int item,
                                           int row0, int boxes, int block) const {
    const uint32_t full = smem.Full(at.stage);
    const int x = block * kRowBytes;
    ptx::MbarrierArriveExpectTx(full, C.row_bytes() + boxes * kWideBoxBytes);
    if constexpr (C.b_along_rows) {
      LoadAlongRows<C.rows, false>(b, full, smem.Rows(at.stage), row0, block * C.block_k(), item, 0,
                                   ptx::kEvictNormal);
    } else {
      ptx::TensorLoad(b, full, smem.Rows(at.stage), x, row0, 0, item, ptx::kEvictNormal);
    }
    if (boxes == C.cols / kRowsAWideBox) {  // all of them: as few copies as can be
#pragma unroll
      for (int row = place.row * kFullBoxRows; row < C.cols; row += C.share_cols * kFullBoxRows) {
        const uint32_t to = smem.Cols(at.stage) + row * kRowBytes;
        if constexpr (C.share_cols == 1) {
          ptx::TensorLoad(&launch.full_a, full, to, x, stop.rows.row0 + row, 0, stop.rows.item,
                          ptx::kEvictNormal);
        } else {
          ptx::TensorLoadMulticast(&launch.full_a, full, to, x, stop.rows.row0 + row, 0,
                                   stop.rows.item, place.ColPeers(), ptx::kEvictNormal);
        }
      }
      return;
    }
#pragma unroll 1
    for (int box = place.row; box < boxes; box += C.share_cols) {
      const uint32_t to = smem.Cols(at.stage) + box * kWideBoxBytes;
      const int row = stop.rows.row0 + box * kRowsAWideBox;
      if constexpr (C.share_cols == 1) {
        ptx::TensorLoad(&launch.wide_a, full, to, x, row, 0, stop.rows.item, ptx::kEvictNormal);
      } else {
        ptx::TensorLoadMulticast(&launch.wide_a, full, to, x, row, 0, stop.rows.item,
                                 place.ColPeers(), ptx::kEvictNormal);
      }
    }
  }
  // Of a thin one: two k blocks, of which the second may lie behind k.
  __device__ __forceinline__ void LoadThin(const GroupStop& stop, const CUtensorMap* b, int item,
                                           int row0, int boxes, int block) const {
    const uint32_t full = smem.Full(at.stage);
    const uint32_t rows = smem.Rows(at.stage), cols = rows + T.k_blocks * T.row_bytes();
    ptx::MbarrierArriveExpectTx(full, T.k_blocks * (T.row_bytes() + boxes * kABoxBytes));
    // Both k blocks at once make longer runs of memory, but take whole ones.
    if constexpr (C.b_along_rows) {
      LoadAlongRows<T.rows, false, T.k_blocks, T.row_bytes()>(
          b, full, rows, row0, block * T.block_k(), item, 0, ptx::kEvictFirst);
    } else if (launch.whole_blocks) {
      ptx::TensorLoad(b, full, rows, 0, row0, block, item, ptx::kEvictFirst);
    } else {
#pragma unroll
      for (int i = 0; i < T.k_blocks; ++i) {
        ptx::TensorLoad(b, full, rows + i * T.row_bytes(), (block + i) * kRowBytes, row0, 0, item,
                        ptx::kEvictFirst);
      }
    }
#pragma unroll
    for (int i = 0; i < T.k_blocks; ++i) {
#pragma unroll 1
      for (int box = 0; box < boxes; ++box) {
        ptx::TensorLoad(&launch.thin_a, full, cols + i * T.col_bytes() + box * kABoxBytes,
                        (block + i) * kRowBytes, stop.rows.row0 + box * kRowsABox, 0,
                        stop.rows.item, ptx::kEvictLast);
      }
    }
  }

  // The tiles of one kind from `index` on; the index among the next kind's.
  template <bool kWide>
  __device__ __forceinline__ int Walk(const DirectWalk& walk, int index, int clusters) {
    constexpr int kKind = kWide ? kWideTile : kThinTile;
    GroupMaps<kTable> maps = {kWide ? &launch.wide_b : &launch.thin_b, launch.b_maps[kKind]};
    const int tiles = walk.Total(kKind);
    for (; index < tiles; index += clusters) {
      const GroupStop stop = walk.At(kKind, index);
      const auto b = maps.Of(stop.rows.group);
      const int row0 = (stop.n * C.share_cols + place.row) * C.rows;
      const int boxes =
          kWide ? BoxesOf<kRowsAWideBox>(stop.rows, C.cols) : BoxesOf<kRowsABox>(stop.rows, T.cols);
#pragma unroll 1
      for (int block = 0; block < launch.k_blocks; block += kWide ? 1 : T.k_blocks) {
        ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
        if (ptx::ElectOne()) {
          if constexpr (kWide) {
            LoadWide(stop, b.map, b.item, row0, boxes, block);
          } else {
            LoadThin(stop, b.map, b.item, row0, boxes, block);
          }
        }
        __syncwarp();
        at.Advance();
      }
    }
    return index - tiles;
  }
};

}  // namespace gemmd::kernels::cuda
