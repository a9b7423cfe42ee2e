#include "kernels/cuda/matmul/cublaslt/cublaslt_family.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

struct Kind {
  CublasLtKind kind;
  DType operand;
  ScaleGranularity a, b;
  double flops;  // a second, of a Hopper GPU at its best
  const char* description;
};
constexpr Kind kKinds[] = {
    {CublasLtKind::kFp8Block, DType::kE4M3, ScaleGranularity::kBlock1x128,
     ScaleGranularity::kBlock128x128, 1979e12, "E4M3 with 1x128 and 128x128 scales"},
    {CublasLtKind::kFp8TensorWise, DType::kE4M3, ScaleGranularity::kPerTensor,
     ScaleGranularity::kPerTensor, 1979e12, "E4M3 with a scale for each operand"},
    {CublasLtKind::kBf16, DType::kBF16, ScaleGranularity::kNone, ScaleGranularity::kNone, 989e12,
     "BF16"},
    {CublasLtKind::kF16, DType::kF16, ScaleGranularity::kNone, ScaleGranularity::kNone, 989e12,
     "FP16"},
    {CublasLtKind::kI8, DType::kI8, ScaleGranularity::kNone, ScaleGranularity::kNone, 1979e12,
     "INT8 into 32-bit integers"},
};

std::string OperandWhyNot(const char* name, const OperandTraits& operand, DType dtype,
                          ScaleGranularity scales) {
  if (operand.dtype != dtype) {
    return StrCat(name, " is ", Text(Name(operand.dtype)), "; this kind multiplies ",
                  Text(Name(dtype)));
  }
  if (operand.granularity != scales) {
    return StrCat("scales of ", name, " are ", Text(Name(operand.granularity)),
                  "; this kind takes ", Text(Name(scales)));
  }
  if (operand.layout == Layout::kKContiguous) return "";
  return StrCat(name, " is not contiguous along k; copy or transpose it");
}

std::string ResultWhyNot(const MatmulProblem& p, bool integers) {
  const bool floats =
      p.d.dtype == DType::kF32 || p.d.dtype == DType::kBF16 || p.d.dtype == DType::kF16;
  if (integers ? p.d.dtype != DType::kI32 : !floats) {
    return StrCat("d is ", Text(Name(p.d.dtype)), "; this kind writes ",
                  integers ? "i32" : "f32, bf16 or f16");
  }
  if (p.d.layout != Layout::kKContiguous) return "d is not contiguous along n; use a row-major d";
  if (!p.has_c) return "";
  if (integers) return "beta is not 0; no plan is made for that with integers";
  if (p.c.layout == Layout::kKContiguous) return "";
  return "c is not contiguous along n; use a row-major c";
}

// As the library takes block scales.
std::string BlocksWhyNot(const MatmulProblem& p) {
  if (p.m % 4 != 0 || p.n % 4 != 0) {
    return StrCat("block scales need m and n in multiples of 4; m=", p.m, ", n=", p.n);
  }
  const AnyGemmArgs g = UnplacedArgs(p);
  const int64_t k_blocks = (p.k + kScaleBlock - 1) / kScaleBlock;
  const int64_t ld_b = (k_blocks + 3) / 4 * 4;
  if (g.a.scales.k_stride != p.m || g.b.scales.row_stride != ld_b) {
    return StrCat("scales of a and b have ", g.a.scales.k_stride, " and ", g.b.scales.row_stride,
                  " floats between blocks; the library takes ", p.m, " and ", ld_b);
  }
  return "";
}

class CublasLtMatmul final : public PreparedMatmul {
 public:
  CublasLtMatmul(const CublasLt& library, CublasLt::Plan plan)
      : library_(library), plan_(std::move(plan)) {}

  absl::Status Launch(bool, cudaStream_t stream) const override {
    return library_.Run(plan_, stream);
  }

 private:
  const CublasLt& library_;
  const CublasLt::Plan plan_;
};

}  // namespace

CublasLtFamily::CublasLtFamily(const CublasLt* library) : library_(library) {
  for (const Kind& kind : kKinds) {
    infos_.push_back({std::string(Name(kind.kind)), "cublaslt", kind.description});
  }
}

std::string CublasLtFamily::WhyNot(int member, const MatmulProblem& p) const {
  const Kind& kind = kKinds[member];
  if (p.batch != 1) return StrCat("batch=", p.batch, ": a plan multiplies one matrix; send each");
  for (const auto& [name, extent] : {std::pair("m", p.m), {"n", p.n}, {"k", p.k}}) {
    if (extent < 1) return StrCat(name, "=", extent, ": there is nothing to multiply");
  }
  if (!p.reads_operands) return "alpha is 0: a and b must not be read";
  if (p.has_bias || p.activation != Activation::kNone) {
    return "it has a bias or an activation; no plan is made for that";
  }
  std::string why = OperandWhyNot("a", p.a, kind.operand, kind.a);
  if (why.empty()) why = OperandWhyNot("b", p.b, kind.operand, kind.b);
  if (why.empty()) why = ResultWhyNot(p, kind.kind == CublasLtKind::kI8);
  if (why.empty() && kind.kind == CublasLtKind::kFp8Block) why = BlocksWhyNot(p);
  return why;
}

double CublasLtFamily::Seconds(int member, const MatmulProblem& problem) const {
  constexpr double kLaunchSeconds = 3e-6, kBytesPerSecond = 4e12;
  return kLaunchSeconds +
         std::max(problem.flops() / kKinds[member].flops, problem.bytes() / kBytesPerSecond);
}

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> CublasLtFamily::Prepare(
    int member, const MatmulArgs& args, std::byte*) const {
  auto plan = library_->Prepare(kKinds[member].kind, GemmArgsOf(args.gemm, ScaleCopies(), nullptr));
  if (!plan.ok()) return plan.status();
  return std::make_unique<CublasLtMatmul>(*library_, *std::move(plan));
}

}  // namespace gemmd::kernels::cuda
