#include "client/cli/numerics/shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/files/dtype.h"

namespace gemmd::cli {

using files::ShapeText;

std::vector<int64_t> MatmulShape::DShape() const {
  return a_batched ? std::vector<int64_t>{batch, m, n} : std::vector<int64_t>{m, n};
}

absl::StatusOr<MatmulShape> ShapeOfMatmul(absl::Span<const int64_t> a, absl::Span<const int64_t> b,
                                          bool nt) {
  for (const auto& [name, shape] : {std::pair("A", a), std::pair("B", b)}) {
    if (shape.size() == 2 || shape.size() == 3) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", ShapeText(shape),
                                                   ", a matmul takes 2 extents, or 3 ",
                                                   "with a batch; reshape it"));
  }
  MatmulShape shape;
  shape.a_batched = a.size() == 3;
  shape.b_batched = b.size() == 3;
  shape.batch = shape.a_batched ? a[0] : 1;
  shape.m = a[a.size() - 2];
  shape.k = a[a.size() - 1];
  const int64_t b_rows = b[b.size() - 2];
  const int64_t b_columns = b[b.size() - 1];
  shape.n = nt ? b_rows : b_columns;
  const int64_t b_k = nt ? b_columns : b_rows;
  if (b_k != shape.k) {
    const int64_t other_k = nt ? b_rows : b_columns;
    return absl::InvalidArgumentError(absl::StrCat("A ", ShapeText(a), " has k=", shape.k, ", B ",
                                                   ShapeText(b), " read as ",
                                                   nt ? "[n, k]" : "[k, n]", " has k=", b_k,
                                                   other_k != shape.k ? "; they must be equal"
                                                   : nt ? "; leave --nt out if B is [k, n]"
                                                        : "; pass --nt if B is [n, k]"));
  }
  if (shape.b_batched && (!shape.a_batched || b[0] != a[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat("B ", ShapeText(b), " has batch ", b[0], ", A ", ShapeText(a), " has ",
                     shape.a_batched ? absl::StrCat("batch ", a[0]) : "none",
                     "; a batched B needs an A of the same batch"));
  }
  return shape;
}

absl::Status CheckC(const MatmulShape& shape, absl::Span<const int64_t> c) {
  const std::vector<int64_t> d = shape.DShape();
  if (c == absl::MakeConstSpan(d)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("C is ", ShapeText(c), ", it must have D's shape ", ShapeText(d)));
}

absl::Status CheckBias(const MatmulShape& shape, absl::Span<const int64_t> bias) {
  if (bias.size() == 1 && bias[0] == shape.n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bias is ", ShapeText(bias), ", it must have one extent, n=", shape.n));
}

}  // namespace gemmd::cli
