#include "kernels/cuda/matmul/gradient/gradient_launch.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gradient/gradient_sides.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/tensor_map.h"

namespace gemmd::kernels::cuda {
namespace {

// The side's scales as they lie, or as a copy of them will.
ScaleView LaidOut(const GradientSide& side, int64_t k, bool copied, std::byte* at,
                  std::vector<ScaleLayoutArgs>& copies) {
  ScaleView view = side.operand.scales;
  if (!copied) return view;
  ScaleLayoutArgs copy;
  copy.batch = side.batch;
  copy.rows = side.rows;
  copy.k_blocks = CeilDiv(k, kScaleBlock);
  copy.src = view.data;
  copy.src_batch = view.batch_stride;
  copy.src_row = view.row_stride;
  copy.src_k = view.k_stride;
  copy.dst = reinterpret_cast<float*>(at);
  copy.dst_ld = MMajorLeadingDimension(side.rows);
  copy.dst_batch = copy.dst_ld * copy.k_blocks;
  copies.push_back(copy);
  view.data = copy.dst;
  view.row_stride = 1;
  view.k_stride = copy.dst_ld;
  view.batch_stride = copy.dst_batch;
  return view;
}

TensorView ValuesOf(const GradientSide& side, int64_t k, int box_rows) {
  const int64_t size = ElementBytes(side.type);
  if (AlongRows(side.operand, k)) {
    return {.address = side.operand.data,
            .cols = side.rows * size,
            .rows = k,
            .batch = side.batch,
            .row_stride_bytes = side.operand.k_stride * size,
            .batch_stride_bytes = side.operand.batch_stride * size,
            .box_cols = kRowBytes,
            .box_rows = static_cast<int>(kRowBytes / size)};
  }
  return {.address = side.operand.data,
          .cols = k * size,
          .rows = side.rows,
          .batch = side.batch,
          .row_stride_bytes = side.operand.row_stride * size,
          .batch_stride_bytes = side.operand.batch_stride * size,
          .box_cols = kRowBytes,
          .box_rows = box_rows};
}

TensorView ScalesOf(const ScaleView& scales, const GradientSide& side, int64_t k, int box) {
  return {.address = scales.data,
          .cols = side.rows,
          .rows = 1,
          .planes = CeilDiv(k, kScaleBlock),
          .batch = side.batch,
          .plane_stride_bytes = scales.k_stride * 4,
          .batch_stride_bytes = scales.batch_stride * 4,
          .box_cols = box,
          .box_rows = 1};
}

// Of D, or of C, which lies as D may.
absl::StatusOr<CUtensorMap> ResultMap(const AnyGemmArgs& g, const AnyResult& result) {
  const int64_t size = ElementBytes(g.out);
  const TensorView view = {.address = result.data,
                           .cols = g.n,
                           .rows = g.m,
                           .batch = g.batch,
                           .row_stride_bytes = result.row_stride * size,
                           .batch_stride_bytes = result.batch_stride * size,
                           .box_cols = static_cast<int>(128 / size),
                           .box_rows = 64};
  return size == 4 ? StoreMapF32(view) : StoreMap(view);
}

// Whether the copy engine reads C.
bool InBoxes(const AnyGemmArgs& g) {
  const int64_t size = ElementBytes(g.out);
  const auto steps = [&](int64_t stride, int64_t least, int64_t extent) {
    return extent == 1 ||
           (stride * size % kTmaBytes == 0 && stride >= least && stride * size <= kMostStride);
  };
  return Aligned(g.c.data) && steps(g.c.row_stride, g.n, g.m) &&
         steps(g.c.batch_stride, 1, g.batch);
}

// Whether D is C, element for element.
bool InPlace(const AnyGemmArgs& g) {
  return g.c.data == g.d.data && (g.m == 1 || g.c.row_stride == g.d.row_stride) &&
         (g.batch == 1 || g.c.batch_stride == g.d.batch_stride);
}

}  // namespace

absl::StatusOr<PreparedGradient> PrepareGradient(const GradientProblem& problem, int config,
                                                 std::byte* scratch, const DeviceTraits& device) {
  const AnyGemmArgs& g = problem.args;
  const GradientFamilyEntry& family = GradientEntryOf(g.type);
  const GemmConfig& shape = family.configs[config];
  const auto [a, b] = SidesOf(problem);
  const GradientCopies copies = CopiesOf(problem);
  PreparedGradient prepared;
  prepared.config = config;
  prepared.family = &family;
  prepared.types = {a.type == ElementType::kE5M2, b.type == ElementType::kE5M2,
                    AlongRows(a.operand, g.k)};
  GradientLaunch& launch = prepared.launch;
  for (auto [map, made] :
       {std::pair(&launch.row_map, ValuesMap(ValuesOf(a, g.k, shape.rows / shape.share_rows))),
        std::pair(&launch.col_map, ValuesMap(ValuesOf(b, g.k, shape.cols / shape.share_cols))),
        std::pair(&launch.store_map, ResultMap(g, g.d))}) {
    if (!made.ok()) return made.status();
    *map = *made;
  }
  if (IsFp8(g.type)) {
    const ScaleView of_a = LaidOut(a, g.k, copies.a, scratch, prepared.copies);
    const ScaleView of_b = LaidOut(b, g.k, copies.b, scratch + copies.b_offset, prepared.copies);
    for (auto [map, made] :
         {std::pair(&launch.row_scale_map, ScalesMap(ScalesOf(of_a, a, g.k, shape.rows))),
          std::pair(&launch.col_scale_map, ScalesMap(ScalesOf(of_b, b, g.k, shape.cols)))}) {
      if (!made.ok()) return made.status();
      *map = *made;
    }
  }
  launch.m = static_cast<int>(g.m);
  launch.n = static_cast<int>(g.n);
  launch.k = static_cast<int>(g.k);
  launch.out = g.out == ElementType::kF32    ? OutType::kF32
               : g.out == ElementType::kBF16 ? OutType::kBF16
                                             : OutType::kF16;
  launch.alpha = g.alpha;
  launch.adds = g.beta == 1.0f && launch.out == OutType::kF32 && InPlace(g);
  if (!launch.adds) {
    launch.beta = g.beta;
    launch.c = g.c.data;
    launch.ldc = g.c.row_stride;
    launch.c_batch = g.c.batch_stride;
    launch.c_in_boxes = g.beta != 0 && InBoxes(g);
  }
  if (launch.c_in_boxes) {
    auto map = ResultMap(g, g.c);
    if (!map.ok()) return map.status();
    launch.c_map = *map;
  }
  absl::Status ready =
      ToStatus(family.prepare(config, prepared.types), "preparing a gradient kernel");
  int at_once = 0;
  ready.Update(ToStatus(family.max_clusters(config, prepared.types, &at_once),
                        "occupancy of a gradient kernel"));
  if (!ready.ok()) return ready;
  if (shape.multicast() == 1) at_once = device.sms;
  constexpr int64_t kBand = 16;
  const ClusterTiles tiles = ClusterTilesOf(g, shape);
  launch.tiles = GridOf(tiles.rows, tiles.cols, g.batch,
                        static_cast<int>(std::min(tiles.rows, kBand / shape.share_cols)));
  launch.cluster_ctas = MakeDivisor(shape.multicast());
  launch.clusters = static_cast<int>(std::min<int64_t>(launch.tiles.count, at_once));
  constexpr int kMostMixed = 1 << 15;  // of a cluster's tiles, whose square is counted in 32 bits
  // Measured: what is added in memory gains an eighth by it, what is stored loses 2 to 5 %.
  launch.mixes = launch.adds && problem.grouped && g.batch > 1 &&
                 launch.tiles.count / launch.clusters < kMostMixed;
  launch.keeps = problem.grouped && g.beta == 1.0f && InPlace(g);
  return prepared;
}

cudaError_t LaunchGradient(const PreparedGradient& prepared, bool overlap, cudaStream_t stream) {
  for (ScaleLayoutArgs copy : prepared.copies) {
    copy.programmatic = overlap;
    if (const cudaError_t code = LaunchScaleLayout(copy, stream); code != cudaSuccess) return code;
    overlap = true;
  }
  GradientLaunch launch = prepared.launch;
  launch.programmatic = overlap;
  return prepared.family->launch(prepared.config, prepared.types, launch, stream);
}

}  // namespace gemmd::kernels::cuda
