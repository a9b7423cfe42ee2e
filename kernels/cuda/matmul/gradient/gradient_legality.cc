// What the gradient kernels take, and what is copied for them.

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/gradient/gradient_launch.h"
#include "kernels/cuda/matmul/gradient/gradient_sides.h"
#include "kernels/cuda/rounding.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kMostExtent = 1 << 29;  // Divide() and int coordinates

// Lines of `extent` elements, along k or along rows.
std::string LinesWhyNot(const char* lines, const GradientSide& side, int64_t stride,
                        int64_t extent) {
  const int64_t size = ElementBytes(side.type), bytes = stride * size;
  if (bytes % kTmaBytes == 0 && stride >= extent && bytes <= kMostStride) return "";
  return StrCat(lines, " of ", side.name, " are ", bytes, " bytes apart, not a multiple of ",
                kTmaBytes, " of at least ", extent * size, "; pad them");
}

std::string SideWhyNot(const GradientSide& side, int64_t k) {
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
bool TakesScales(const GradientSide& side, int64_t k) {
  const ScaleView& s = side.operand.scales;
  const int64_t k_blocks = CeilDiv(k, kScaleBlock);
  return Aligned(s.data) && (s.row_stride == 1 || side.rows == 1) &&
         (k_blocks == 1 || (s.k_stride >= side.rows && s.k_stride % 4 == 0)) &&
         (side.batch == 1 || (s.batch_stride > 0 && s.batch_stride % 4 == 0));
}

int64_t CopyFloats(const GradientSide& side, int64_t k) {
  return side.batch * CeilDiv(k, kScaleBlock) * MMajorLeadingDimension(side.rows);
}

}  // namespace

std::string_view GradientName(DType a) { return GradientEntryOf(static_cast<ElementType>(a)).name; }

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
  const auto bytes = [&](const GradientSide& side) {
    return RoundUp(4 * CopyFloats(side, problem.args.k), kScratchAlignment);
  };
  if (copies.a) copies.b_offset = bytes(a);
  copies.scratch_bytes = copies.b_offset + (copies.b ? bytes(b) : 0);
  return copies;
}

}  // namespace gemmd::kernels::cuda
