#include "kernels/cuda/ladder/ladder.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace ladder {
namespace {

using absl::StrCat;

constexpr int64_t kMaxExtent = int64_t{1} << 22;  // tiles and coordinates are counted in int32
constexpr int64_t kWholeTile = 128;               // steps 1 to 3 look at no edges
constexpr int64_t kWholeK = 64;
constexpr int kAlignment = 16;  // bytes, of whoever moves 16 at a time: threads as the copy engine

std::string ExtentWhyNot(const char* name, int64_t extent) {
  if (extent < 1) return StrCat(name, "=", extent, ": there is nothing to multiply");
  if (extent <= kMaxExtent) return "";
  return StrCat(name, "=", extent, " exceeds ", kMaxExtent, "; divide the matrix along ", name);
}

std::string WholeWhyNot(const char* name, int64_t extent, int64_t tile, bool only_one) {
  if (only_one && extent != tile) {
    return StrCat(name, "=", extent, ": this rung multiplies one tile, with ", name, "=", tile,
                  "; take a later rung");
  }
  if (extent % tile == 0) return "";
  return StrCat(name, "=", extent, " is not a multiple of ", tile,
                ": this rung looks at no edges; pad ", name, " to ", (extent / tile + 1) * tile,
                " or take a rung with TMA");
}

std::string ExtentsWhyNot(const Rung& rung, const MatmulProblem& p) {
  if (p.batch != 1) return StrCat("batch=", p.batch, ": a rung multiplies one matrix; send each");
  for (auto [name, extent] : {std::pair{"m", p.m}, {"n", p.n}, {"k", p.k}}) {
    if (std::string why = ExtentWhyNot(name, extent); !why.empty()) return why;
  }
  if (rung.uses_tma) return "";
  std::string why = WholeWhyNot("m", p.m, kWholeTile, rung.one_tile);
  if (why.empty()) why = WholeWhyNot("n", p.n, kWholeTile, rung.one_tile);
  if (why.empty()) why = WholeWhyNot("k", p.k, kWholeK, rung.one_k_tile);
  return why;
}

// `cols` of each row, `rows` rows.
std::string RowsWhyNot(const char* name, const OperandTraits& operand, int64_t rows, int64_t cols) {
  if (operand.layout != Layout::kKContiguous) {
    return StrCat("rows of ", name, " are not contiguous; copy or transpose it");
  }
  if (rows > 1 && operand.leading_stride < cols) {
    return StrCat("rows of ", name, " are ", operand.leading_stride,
                  " elements apart, less than their ", cols, ": they overlap; copy it");
  }
  if (operand.alignment_bytes % kAlignment == 0) return "";
  return StrCat("rows of ", name, " start at multiples of ", operand.alignment_bytes,
                " bytes only; place them at multiples of ", kAlignment);
}

std::string TypeWhyNot(const char* name, DType type, DType wanted) {
  if (type == wanted) return "";
  return StrCat(name, " is ", Text(Name(type)), "; this rung takes ", Text(Name(wanted)));
}

std::string ScalesWhyNot(const char* name, ScaleGranularity scales, ScaleGranularity wanted) {
  if (scales == wanted) return "";
  return StrCat("scales of ", name, " are ", Text(Name(scales)), "; this rung takes ",
                Text(Name(wanted)));
}

std::string EpilogueWhyNot(const MatmulProblem& p) {
  if (p.has_c) return "beta is not 0; a rung adds no c";
  if (p.has_bias) return "there is a bias; a rung adds none";
  if (p.activation != Activation::kNone) {
    return StrCat("activation ", Text(Name(p.activation)), "; a rung applies none");
  }
  return "";
}

TensorView ViewOf(const AnyOperand& operand, int64_t rows, int64_t k, int64_t element_bytes,
                  int box_rows) {
  return {.address = operand.data,
          .cols = k * element_bytes,
          .rows = rows,
          .row_stride_bytes = operand.row_stride * element_bytes,
          .box_cols = 128,
          .box_rows = box_rows};
}

absl::StatusOr<Maps> MapsOf(const Rung& rung, const AnyGemmArgs& any) {
  const int64_t bytes = ElementBytes(any.type);
  const absl::StatusOr<CUtensorMap> a =
      ValuesMap(ViewOf(any.a, any.m, any.k, bytes, rung.a_box_rows));
  if (!a.ok()) return a.status();
  const absl::StatusOr<CUtensorMap> b = ValuesMap(ViewOf(any.b, any.n, any.k, bytes, kTileRows));
  if (!b.ok()) return b.status();
  const absl::StatusOr<CUtensorMap> d = StoreMap({.address = any.d.data,
                                                  .cols = any.n,
                                                  .rows = any.m,
                                                  .row_stride_bytes = any.d.row_stride * 2,
                                                  .box_cols = 64,
                                                  .box_rows = kTileRows});
  if (!d.ok()) return d.status();
  return Maps{*a, *b, *d};
}

template <int kIndex>
cudaError_t Launch(const AnyGemmArgs& any, cudaStream_t stream) {
  if (any.alpha == 0) return LaunchAnyGemm(any, stream);  // A and B are not read
  const Rung& rung = kRungs[kIndex];
  Matmul g;
  g.m = static_cast<int>(any.m);
  g.n = static_cast<int>(any.n);
  g.k = static_cast<int>(any.k);
  g.alpha = any.alpha;
  g.a = any.a.data;
  g.lda = any.a.row_stride;
  g.b = any.b.data;
  g.ldb = any.b.row_stride;
  g.d = any.d.data;
  g.ldd = any.d.row_stride;
  g.a_scales = any.a.scales;
  g.b_scales = any.b.scales;
  if (!rung.uses_tma) return rung.launch(g, Maps{}, stream);
  const absl::StatusOr<Maps> maps = MapsOf(rung, any);
  return maps.ok() ? rung.launch(g, *maps, stream) : cudaErrorInvalidValue;
}

double Seconds(const Rung& rung, const MatmulProblem& problem) {
  constexpr double kLaunchSeconds = 4e-6;
  constexpr double kBytesPerSecond = 3e12;
  return kLaunchSeconds + std::max(problem.flops() / rung.rate, problem.bytes() / kBytesPerSecond);
}

template <int... kIndex>
std::vector<PlainKernel> Members(std::integer_sequence<int, kIndex...>) {
  const auto member = [](const Rung& rung, auto launch) {
    const char* types =
        rung.is_fp8 ? "e4m3 with 1x128 and 128x128 scales into bf16" : "f16 into f16";
    PlainKernel kernel;
    kernel.info = {rung.name, kLadderFamily,
                   StrCat("for study: ", rung.idea, "; ", types, ", by its name alone")};
    kernel.why_not = [&rung](const MatmulProblem& problem) { return WhyNot(rung, problem); };
    kernel.seconds = [&rung](const MatmulProblem& problem) { return Seconds(rung, problem); };
    kernel.launch = launch;
    kernel.standing = Standing::kByName;
    return kernel;
  };
  return {member(kRungs[kIndex], Launch<kIndex>)...};
}

}  // namespace

std::string WhyNot(const Rung& rung, const MatmulProblem& p) {
  const DType in = rung.is_fp8 ? DType::kE4M3 : DType::kF16;
  const auto scales = [&](ScaleGranularity granularity) {
    return rung.is_fp8 ? granularity : ScaleGranularity::kNone;
  };
  std::string why = TypeWhyNot("a", p.a.dtype, in);
  if (why.empty()) why = TypeWhyNot("b", p.b.dtype, in);
  if (why.empty()) why = TypeWhyNot("d", p.d.dtype, rung.is_fp8 ? DType::kBF16 : DType::kF16);
  if (why.empty()) {
    why = ScalesWhyNot("a", p.a.granularity, scales(ScaleGranularity::kBlock1x128));
  }
  if (why.empty()) {
    why = ScalesWhyNot("b", p.b.granularity, scales(ScaleGranularity::kBlock128x128));
  }
  if (why.empty()) why = EpilogueWhyNot(p);
  if (why.empty()) why = ExtentsWhyNot(rung, p);
  if (why.empty()) why = RowsWhyNot("a", p.a, p.m, p.k);
  if (why.empty()) why = RowsWhyNot("b", p.b, p.n, p.k);
  if (why.empty()) why = RowsWhyNot("d", p.d, p.m, p.n);
  return why;
}

}  // namespace ladder

std::vector<PlainKernel> LadderKernels() {
  return ladder::Members(std::make_integer_sequence<int, ladder::kNumRungs>());
}

}  // namespace gemmd::kernels::cuda
