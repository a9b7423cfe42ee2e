#include "kernels/cuda/matmul/gradient_launch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/cuda/tuning/model.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kMostExtent = 1 << 29;  // Divide() and int coordinates
constexpr int64_t kMostStride = int64_t{1} << 39;

bool IsFp8(ElementType type) { return type == ElementType::kE4M3 || type == ElementType::kE5M2; }
bool Is16Bits(ElementType type) { return type == ElementType::kBF16 || type == ElementType::kF16; }

const GradientFamilyEntry& EntryOf(ElementType type) {
  return type == ElementType::kBF16  ? kSm90Bf16Gradient
         : type == ElementType::kF16 ? kSm90F16Gradient
                                     : kSm90Fp8Gradient;
}
bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kTmaBytes == 0; }

// A side's rows, and how many matrices of it there are.
struct Side {
  const char* name;
  const AnyOperand& operand;
  ElementType type;
  ScaleGranularity granularity;
  int64_t rows;
  int64_t batch;
};
std::pair<Side, Side> SidesOf(const GradientProblem& p) {
  const AnyGemmArgs& g = p.args;
  const int64_t batch = p.grouped ? 1 : g.batch;
  return {{"a", g.a, g.type, p.a, g.m, batch}, {"b", g.b, g.b_type, p.b, g.n, batch}};
}

// Whether the operand lies along its rows and not along k.
bool AlongRows(const AnyOperand& x, int64_t k) { return k > 1 && x.k_stride != 1; }

// Lines of `extent` elements, along k or along rows.
std::string LinesWhyNot(const char* lines, const Side& side, int64_t stride, int64_t extent) {
  const int64_t size = ElementBytes(side.type), bytes = stride * size;
  if (bytes % kTmaBytes == 0 && stride >= extent && bytes <= kMostStride) return "";
  return StrCat(lines, " of ", side.name, " are ", bytes, " bytes apart, not a multiple of ",
                kTmaBytes, " of at least ", extent * size, "; pad them");
}

std::string SideWhyNot(const Side& side, int64_t k) {
  const AnyOperand& x = side.operand;
  const bool fp8 = IsFp8(side.type);
  const ScaleGranularity wanted = fp8 ? ScaleGranularity::kBlock1x128 : ScaleGranularity::kNone;
  if (side.granularity != wanted) {
    return StrCat("scales of ", side.name, " are ", Text(Name(side.granularity)),
                  "; these kernels need ", fp8 ? "1x128" : "none");
  }
  if (AlongRows(x, k) && (fp8 || (x.row_stride != 1 && side.rows > 1))) {
    return StrCat(side.name, " is not contiguous along k", fp8 ? "" : ", nor along its rows",
                  "; copy or transpose it");
  }
  if (!Aligned(x.data)) {
    return StrCat(side.name, " starts at no multiple of ", kTmaBytes, " bytes; place it there");
  }
  std::string why;
  if (AlongRows(x, k)) {
    why = LinesWhyNot("columns", side, x.k_stride, side.rows);
  } else if (side.rows > 1) {
    why = LinesWhyNot("rows", side, x.row_stride, k);
  }
  if (!why.empty()) return why;
  const int64_t apart = x.batch_stride * ElementBytes(side.type);
  if (side.batch > 1 && (apart % kTmaBytes != 0 || apart <= 0 || apart > kMostStride)) {
    return StrCat("matrices of ", side.name, " are ", apart, " bytes apart, no multiple of ",
                  kTmaBytes, " above 0; copy them");
  }
  return "";
}

std::string ResultWhyNot(const AnyGemmArgs& g) {
  const int64_t size = ElementBytes(g.out);
  if (g.n > 1 && g.d.col_stride != 1) return "d is not contiguous along n; use a row-major d";
  if (!Aligned(g.d.data)) {
    return StrCat("d starts at no multiple of ", kTmaBytes, " bytes; place it there");
  }
  if (g.m > 1 && (g.d.row_stride * size % kTmaBytes != 0 || g.d.row_stride < g.n)) {
    return StrCat("rows of d are ", g.d.row_stride * size, " bytes apart, not a multiple of ",
                  kTmaBytes, " of at least n elements; pad them");
  }
  if (g.n * size % kTmaBytes != 0) {
    return StrCat(
        "rows of d have ", g.n * size, " bytes, not a multiple of ", kTmaBytes,
        ": the copy engine would write behind them; use n=", RoundUp(g.n * size, kTmaBytes) / size);
  }
  if (g.batch > 1 && (g.d.batch_stride * size % kTmaBytes != 0 || g.d.batch_stride <= 0)) {
    return StrCat("matrices of d are ", g.d.batch_stride * size, " bytes apart, no multiple of ",
                  kTmaBytes, "; copy them");
  }
  if (g.beta != 0 && g.n > 1 && g.c.col_stride != 1) {
    return "c is not contiguous along n; use a row-major c";
  }
  return "";
}

// Types that one kernel multiplies, by operands that lie alike.
std::string TypesWhyNot(const GradientProblem& p) {
  const AnyGemmArgs& g = p.args;
  const bool direct = p.grouped && Is16Bits(g.type);
  for (const auto& [name, type] : {std::pair("a", g.type), {"b", g.b_type}}) {
    if (direct ? type == g.type : IsFp8(type)) continue;
    return StrCat(name, " is ", Text(Name(static_cast<DType>(type))), "; these kernels multiply ",
                  direct      ? Text(Name(static_cast<DType>(g.type)))
                  : p.grouped ? "e4m3, e5m2, bf16 or f16"
                              : "e4m3, e5m2");
  }
  if (direct && AlongRows(g.a, g.k) != AlongRows(g.b, g.k)) {
    return "one of a and b lies along k and the other along its rows; transpose one";
  }
  return "";
}

// As the copy engine takes them: stride 1 along the rows, the other strides multiples of 16 bytes.
bool TakesScales(const Side& side, int64_t k) {
  const ScaleView& s = side.operand.scales;
  const int64_t k_blocks = CeilDiv(k, kScaleBlock);
  return Aligned(s.data) && (s.row_stride == 1 || side.rows == 1) &&
         (k_blocks == 1 || (s.k_stride >= side.rows && s.k_stride % 4 == 0)) &&
         (side.batch == 1 || (s.batch_stride > 0 && s.batch_stride % 4 == 0));
}

int64_t CopyFloats(const Side& side, int64_t k) {
  return side.batch * CeilDiv(k, kScaleBlock) * MMajorLeadingDimension(side.rows);
}

// The side's scales as they lie, or as a copy of them will.
ScaleView LaidOut(const Side& side, int64_t k, bool copied, std::byte* at,
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

TensorView ValuesOf(const Side& side, int64_t k, int box_rows) {
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

TensorView ScalesOf(const ScaleView& scales, const Side& side, int64_t k, int box) {
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

// What a cluster computes at a time covers D by so many.
struct ClusterTiles {
  int64_t rows;
  int64_t cols;
};
ClusterTiles ClusterTilesOf(const AnyGemmArgs& g, const GemmConfig& shape) {
  return {CeilDiv(g.m, shape.rows * shape.share_cols), CeilDiv(g.n, shape.cols * shape.share_rows)};
}

// Elements of D that the busiest SM computes, beyond the edges of D, too. Tiles of 128 rows count
// for more, as they are slower.
double ElementsOfAnSm(const AnyGemmArgs& g, int config, int sms) {
  constexpr double kShortTile = 0.9;
  const GemmConfig& shape = EntryOf(g.type).configs[config];
  const ClusterTiles cut = ClusterTilesOf(g, shape);
  const double tiles = static_cast<double>(cut.rows) * static_cast<double>(cut.cols) *
                       static_cast<double>(g.batch) * shape.multicast();
  const double elements = std::ceil(tiles / sms) * shape.rows * shape.cols;
  return config == kGradientConfig ? elements / kShortTile : elements;
}

// Whether D is C, element for element.
bool InPlace(const AnyGemmArgs& g) {
  return g.c.data == g.d.data && (g.m == 1 || g.c.row_stride == g.d.row_stride) &&
         (g.batch == 1 || g.c.batch_stride == g.d.batch_stride);
}

}  // namespace

std::string_view GradientName(DType a) { return EntryOf(static_cast<ElementType>(a)).name; }

std::string WhyNotGradient(const GradientProblem& problem) {
  const AnyGemmArgs& g = problem.args;
  const auto [a, b] = SidesOf(problem);
  std::string why = TypesWhyNot(problem);
  if (why.empty()) why = SideWhyNot(a, g.k);
  if (why.empty()) why = SideWhyNot(b, g.k);
  if (why.empty()) why = ResultWhyNot(g);
  if (!why.empty()) return why;
  if (g.m == 0 || g.n == 0 || g.k == 0 || g.batch == 0) return "there is nothing to multiply";
  if (g.alpha == 0) return "alpha is 0: a and b must not be read";
  if (g.bias != nullptr) return "it has a bias; these kernels add none";
  if (g.activation != ActivationType::kNone) return "it has an activation; these kernels have none";
  for (const auto& [name, extent] :
       {std::pair("m", g.m), std::pair("n", g.n), std::pair("k", g.k)}) {
    if (extent <= kMostExtent) continue;
    return StrCat(name, "=", extent, " is above ", kMostExtent, "; split the op");
  }
  const double tiles = static_cast<double>(CeilDiv(g.m, 128)) *
                       static_cast<double>(CeilDiv(g.n, 128)) * static_cast<double>(g.batch);
  if (tiles > static_cast<double>(kMostExtent)) return "it has too many tiles; split the op";
  return "";
}

GradientCopies CopiesOf(const GradientProblem& problem) {
  GradientCopies copies;
  if (!IsFp8(problem.args.type)) return copies;
  const auto [a, b] = SidesOf(problem);
  copies.a = !TakesScales(a, problem.args.k);
  copies.b = !TakesScales(b, problem.args.k);
  const auto bytes = [&](const Side& side) {
    return RoundUp(4 * CopyFloats(side, problem.args.k), kScratchAlignment);
  };
  if (copies.a) copies.b_offset = bytes(a);
  copies.scratch_bytes = copies.b_offset + (copies.b ? bytes(b) : 0);
  return copies;
}

int GradientConfig(const GradientProblem& problem) {
  // Tiles of 256 rows read a third less from L2, and were 7 to 12 % faster wherever there are rows;
  // sharing A is worth 1 to 3 % more.
  const AnyGemmArgs& g = problem.args;
  if (g.m <= 128) return kGradientConfig;
  return g.n > 128 ? kGradientSharedConfig : kGradientTallConfig;
}

absl::StatusOr<PreparedGradient> PrepareGradient(const GradientProblem& problem, int config,
                                                 std::byte* scratch, const DeviceTraits& device) {
  const AnyGemmArgs& g = problem.args;
  const GradientFamilyEntry& family = EntryOf(g.type);
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

double GradientSeconds(const GradientProblem& problem, double columns, double memory_bytes_per_s,
                       int sms) {
  // Of rounds that fill all SMs, at the clock of long runs, where peaks are 1.67 and 0.84 PFLOP/s.
  constexpr double kFp8Flops = 1.13e15, kDirectFlops = 8.0e14;
  constexpr double kMemoryShare = 0.8;  // of the rate
  constexpr double kStartSeconds = 3e-6;
  constexpr double kInFrontSeconds = 5e-6;  // the directory of groups, or copies of scales
  const AnyGemmArgs& g = problem.args;
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const double batch = static_cast<double>(g.batch);
  // Groups count as equally long: what they are is known to the device alone.
  const double multiplied =
      2 * ElementsOfAnSm(g, GradientConfig(problem), sms) * sms * columns / batch;
  const double flops = (IsFp8(g.type) ? kFp8Flops : kDirectFlops) * ClockHz(2 * m * n * columns) /
                       ModelConstants().hot_clock_hz;
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : 4e12;
  const double results = m * n * batch * ElementBytes(g.out);
  const double bytes = (m + n) * columns * ElementBytes(g.type) + results * (g.beta != 0 ? 2 : 1);
  const bool in_front = problem.grouped || CopiesOf(problem).scratch_bytes > 0;
  return kStartSeconds + (in_front ? kInFrontSeconds : 0) +
         std::max(multiplied / flops, bytes / (rate * kMemoryShare));
}

}  // namespace gemmd::kernels::cuda
