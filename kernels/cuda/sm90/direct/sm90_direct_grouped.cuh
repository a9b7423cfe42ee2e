// Grouped matmuls in BF16 and FP16: one kernel walks over the tiles of all groups. The
// weights are WGMMA's row side, 128 of their rows a CTA, and a tile's rows of A its columns: as
// many as the tile has, in steps of 32, so that groups of any size waste little. Weights of a group
// with up to 256 rows are read once.
//
// A ring serves thin tiles, too, of groups with up to 64 rows: a stage has room for a k block of a
// wide tile, or for two of a thin one. Two CTAs of a cluster take neighbours along the weights'
// rows, and share A.
//
// A tile begins at any row. What it loads behind its end are other rows or zeros: results of theirs
// stay in registers, since each row's products are its own.

#ifndef GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_GROUPED_CUH_
#define GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_GROUPED_CUH_

#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_walk.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

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
    ptx::TensorLoad(b, full, smem.Rows(at.stage), x, row0, 0, item, ptx::kEvictNormal);
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
    if (launch.whole_blocks) {
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

// A math warpgroup: 64 of the tile's weights by its rows of A.
template <GemmConfig C, GemmConfig T>
struct GroupMath {
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  int lane;
  RingPosition<C.stages> issue;    // the next stage to multiply
  RingPosition<C.stages> release;  // the oldest one still in use
  uint32_t writer_empty;           // of GiveBack
  uint32_t lane_offset;
  uint32_t rows_units;  // this warpgroup's rows of stage 0, in units of 16 bytes
  float (&result)[C.result_regs()];

  __device__ GroupMath(const SmemLayout<C>& smem, const ClusterPlace<C>& place, int warp, int lane,
                       float (&result)[C.result_regs()])
      : smem(smem),
        place(place),
        lane(lane),
        writer_empty(ptx::MapToRank(smem.Empty(0),
                                    place.Writer(lane < ClusterPlace<C>::kWriters ? lane : 0))),
        lane_offset(__shfl_sync(0xffffffff, lane * 16, lane)),
        rows_units((smem.Rows(0) + warp / 4 % C.groups * 64 * kRowBytes) / 16),
        result(result) {}

  // The stage at `issue` by `kCols` columns.
  template <int kCols, int kBlocks>
  __device__ __forceinline__ void Issue() {
    constexpr int kBytesAtOnce = 32;  // of k, by one instruction
    auto& sums = reinterpret_cast<float(&)[kCols / 2]>(result[0]);
    ptx::MbarrierWait(smem.Full(issue.stage), issue.parity);
    const uint32_t rows = rows_units + issue.stage * (C.stage_bytes() / 16);
    const uint32_t cols =
        (smem.Rows(0) + kBlocks * C.row_bytes()) / 16 + issue.stage * (C.stage_bytes() / 16);
    ptx::WgmmaFence();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kRowBytes / kBytesAtOnce; ++i) {
        const int k = i * (kBytesAtOnce / 16);
        DirectWgmma<C.mma, kCols>::Multiply(
            sums, ptx::KMajorDescriptor(rows + block * (C.row_bytes() / 16) + k),
            ptx::KMajorDescriptor(cols + block * (T.col_bytes() / 16) + k), true);
      }
    }
    ptx::WgmmaCommit();
    issue.Advance();
  }
  __device__ __forceinline__ void Release() {
    GiveBack<C>(smem, place, smem.Empty(release.stage), lane, lane_offset, writer_empty);
    release.Advance();
  }
  // A tile of `stages`, at least one, by `kCols` columns.
  template <int kCols, int kBlocks>
  __device__ __forceinline__ void Run(int stages) {
    auto& sums = reinterpret_cast<float(&)[kCols / 2]>(result[0]);
    // Zeros, and not a first product that overwrites: ptxas would serialise all of them, since the
    // store leaves other values in the registers.
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i) sums[i] = 0;
    ptx::Pin(sums);
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      Issue<kCols, kBlocks>();
      ptx::WgmmaWait<1>();
      if (i > 0) Release();
    }
    ptx::WgmmaWait<0>();
    ptx::Pin(sums);
    Release();
  }
  // By as few columns as hold so many boxes.
  template <int kBoxes = 3>
  __device__ __forceinline__ void RunWide(int stages, int boxes) {
    constexpr int kCols = kBoxes * kRowsAWideBox;
    if constexpr (kCols < C.cols) {
      if (boxes > kBoxes) return RunWide<kBoxes + 1>(stages, boxes);
    }
    Run<kCols, 1>(stages);
  }
};

// The store's bounds and bias are a tile's: of this copy the compiler keeps what the store reads.
struct TileBounds {
  GemmLaunch launch;
  __device__ explicit TileBounds(const Fp8GemmArgs& args) {
    launch.args = args;
    launch.streams_b = false;
  }
  __device__ __forceinline__ void MoveTo(const DirectGroupedLaunch& all, const GroupTile& tile) {
    launch.args.m = tile.row_end;
    if (all.args.bias == nullptr) return;
    launch.args.bias =
        static_cast<const uint8_t*>(all.args.bias) + tile.group * all.bias_group_bytes;
  }
};

template <GemmConfig C, GemmConfig T>
struct GroupConsumer {
  const DirectGroupedLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  GroupMath<C, T>& math;
  TileBounds& bounds;
  Epilogue<T>& out;

  static constexpr OutType kOwnType = C.mma == Mma::kF16 ? OutType::kF16 : OutType::kBF16;
  static constexpr int kPiece = T.result_regs();  // of T.cols columns

  __device__ __forceinline__ void Store(const GroupStop& stop) {
    bounds.MoveTo(launch, stop.rows);
    out.tile = {(stop.n * C.share_cols + place.row) * C.rows, stop.rows.row0, stop.rows.item};
    if (out.whole && !out.general && launch.args.out == kOwnType) {
      StoreRounded(stop.rows.row_end);
    } else {
      StoreAny(stop);
    }
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }

  // Rounded to the operands' type, in whole units of D. A warp is on its own: its 16 rows of the
  // weights make 32 bytes of each of D's rows, in two units that lie in turns so that stmatrix is
  // free of bank conflicts.
  __device__ __forceinline__ void StoreRounded(int row_end) const {
    constexpr int kRowUnits = 2, kUnitBytes = 16, kRowsAtOnce = 32 / kRowUnits;
    const int lane = out.lane;
    const uint32_t staging = smem.base + SmemLayout<C>::kStore +
                             (out.group * 4 + out.warp) * (T.cols * kRowUnits * kUnitBytes);
    const auto unit = [staging](int row, int half) {
      return staging + (row * kRowUnits + (half ^ (row / 4 & 1))) * kUnitBytes;
    };
    const uint32_t to = unit(lane % 8, lane / 8 % 2);
    const uint32_t from = unit(lane / 2, lane % 2);
    const int n = out.SubRow(0) + out.warp * 16 + lane % 2 * 8;
    const bool inside = n < static_cast<int>(launch.args.n);
    const int64_t ldd = launch.args.ldd;
    int m = out.tile.col0 + lane / 2;
    uint16_t* target =
        static_cast<uint16_t*>(launch.args.d) + out.tile.batch * launch.args.d_batch + m * ldd + n;
#pragma unroll
    for (int piece = 0; piece < C.cols / T.cols; ++piece) {
      if (piece > 0 && out.tile.col0 + piece * T.cols >= row_end) break;
      __syncwarp();  // the last piece has been read
#pragma unroll
      for (int chunk = 0; chunk < T.cols / 8; ++chunk) {
        const float* const v = math.result + piece * kPiece + chunk * 4;
        ptx::StMatrix2Transposed(to + chunk * 8 * kRowUnits * kUnitBytes,
                                 Pack2(v[0], v[1], kOwnType), Pack2(v[2], v[3], kOwnType));
      }
      __syncwarp();
      float4 units[T.cols / kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < T.cols / kRowsAtOnce; ++i) {
        units[i] = ptx::LoadShared4(from + i * 32 * kUnitBytes);
      }
#pragma unroll
      for (int i = 0; i < T.cols / kRowsAtOnce; ++i, m += kRowsAtOnce) {
        ptx::StoreGlobal4If(inside && m < row_end, target, units[i]);
        target += kRowsAtOnce * ldd;
      }
    }
  }

  // By a thin tile's store, once for each of its widths that a tile has: one copy of the code, to
  // which the results move up.
  __device__ __forceinline__ void StoreAny(const GroupStop& stop) {
    const SmemLayout<T> thin{smem.base};
#pragma unroll 1
    while (true) {
      StoreWhole<T>(bounds.launch, thin, out,
                    reinterpret_cast<const float(&)[kPiece]>(math.result[0]));
      out.tile.col0 += T.cols;
      if (out.tile.col0 >= stop.rows.row_end) break;
#pragma unroll
      for (int i = 0; i + kPiece < C.result_regs(); ++i) math.result[i] = math.result[i + kPiece];
    }
  }
  __device__ __forceinline__ void Walk(const DirectWalk& walk, int cluster, int clusters) {
    const int wide_tiles = walk.Total(kWideTile), tiles = wide_tiles + walk.Total(kThinTile);
    for (int index = cluster; index < tiles; index += clusters) {
      GroupStop stop;
      if (index < wide_tiles) {
        stop = walk.At(kWideTile, index);
        math.RunWide(launch.k_blocks, BoxesOf<kRowsAWideBox>(stop.rows, C.cols));
      } else {
        stop = walk.At(kThinTile, index - wide_tiles);
        math.template Run<T.cols, T.k_blocks>((launch.k_blocks + T.k_blocks - 1) / T.k_blocks);
      }
      Store(stop);
    }
  }
};

// The walk's table lies behind what SmemLayout has.
template <GemmConfig C>
inline constexpr uint32_t kWalkTable = SmemLayout<C>::kBarriers + C.stages * 16 + 16;
template <GemmConfig C>
inline constexpr int kDirectGroupedSmem = C.smem_bytes() + DirectWalk::kBytes;

template <GemmConfig C, GemmConfig T>
constexpr bool CheckDirectGrouped() {
  static_assert(!C.promotes() && !C.skinny() && T.skinny() && C.mma == T.mma);
  static_assert(C.rows == T.rows && C.groups == T.groups && C.k_groups == 1 && T.k_groups == 1);
  static_assert(T.stage_bytes() == C.stage_bytes() && C.stages == T.stages && C.k_blocks == 1,
                "one ring");
  static_assert(T.store_bytes() <= C.store_bytes(), "one staging area");
  static_assert(C.cols % T.cols == 0 && T.cols % kRowsAWideBox == 0, "pieces of a wide tile");
  static_assert(C.share_rows == 1, "the weights are each CTA's own");
  static_assert(kDirectGroupedSmem<C> <= kMaxSmemBytes, "a block's shared memory");
  return true;
}

// `kTable`: matrices lie apart.
template <uint64_t kWide, uint64_t kThin, bool kTable>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    DirectGrouped(const __grid_constant__ DirectGroupedLaunch launch) {
  constexpr GemmConfig C = Decode(kWide), T = Decode(kThin);
  static_assert(CheckDirectGrouped<C, T>());
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = blockIdx.x / C.multicast(), clusters = gridDim.x / C.multicast();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = C.math_threads() / 32;
  const DirectWalk walk = {
      launch,
      reinterpret_cast<int*>(raw_smem + (smem.base - ptx::SmemAddress(raw_smem)) + kWalkTable<C>)};
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  if (warp >= kProducerWarp) {
    if (warp > kProducerWarp) return;
    if (ptx::ElectOne()) {
      for (const CUtensorMap* map :
           {&launch.wide_a, &launch.full_a, &launch.wide_b, &launch.thin_a, &launch.thin_b}) {
        ptx::PrefetchTensorMap(map);
      }
#pragma unroll
      for (int stage = 0; stage < C.stages; ++stage) {
        ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
        ptx::MbarrierInit(smem.Empty(stage),
                          C.stage_readers() * kReleasingLanes * ClusterPlace<C>::kWriters);
      }
      ptx::FenceMbarrierInit();
    }
    __syncwarp();
    // At once: the kernel behind this one waits for its end.
    ptx::GridDependencyLaunch();
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);  // the ring, and the walk's table
    GroupProducer<C, T, kTable> producer = {launch, smem, place};
    const int index = producer.template Walk<true>(walk, cluster, clusters);
    producer.template Walk<false>(walk, index, clusters);
  } else {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    // Before the named barrier: the producer comes to that when the whole cluster has arrived here.
    if constexpr (C.multicast() > 1) ptx::ClusterArriveRelaxed();
    ptx::GridDependencyWait();
    walk.Make<C.math_threads() / 32>(warp, lane);
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.multicast() > 1) ptx::ClusterWait();
    float result[C.result_regs()];
    GroupMath<C, T> math(smem, place, warp, lane, result);
    TileBounds bounds(launch.args);
    Epilogue<T> out(bounds.launch, SmemLayout<T>{smem.base}, warp, lane);
    GroupConsumer<C, T> consumer = {launch, smem, place, math, bounds, out};
    consumer.Walk(walk, cluster, clusters);
    if constexpr (C.multicast() > 1) {  // peers may still arrive on this CTA's barriers
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
  }
}

// The kernels of a pair of configs.
template <GemmConfig C, GemmConfig T>
struct DirectGroupedMember {
  static constexpr auto* kKernel = DirectGrouped<Encode(C), Encode(T), false>;
  static constexpr auto* kOfTables = DirectGrouped<Encode(C), Encode(T), true>;

  static cudaError_t Prepare() {
    for (auto* kernel : {kKernel, kOfTables}) {
      const cudaError_t code = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDirectGroupedSmem<C>);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  static cudaError_t Launch(const DirectGroupedLaunch& launch, int ctas, bool programmatic,
                            cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = kDirectGroupedSmem<C>;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = C.multicast();
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = C.multicast() > 1 ? 1 : 0;
    if (programmatic) {
      cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
      overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, launch.b_maps[kThinTile] != nullptr ? kOfTables : kKernel,
                              launch);
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_GROUPED_CUH_
