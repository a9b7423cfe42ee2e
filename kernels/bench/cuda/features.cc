#include "kernels/bench/cuda/features.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/bench/models.h"
#include "kernels/cuda/tuning/model.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

// Dense operands at the best alignment, as Workload makes them.
MatmulProblem PlainProblem(const Shape& shape, DType dtype) {
  cuda::GemmArgs args;
  args.m = shape.m;
  args.n = shape.n;
  args.k = shape.k;
  args.lda = args.ldb = shape.k;
  args.ldd = shape.n;
  if (dtype == DType::kE4M3) {  // scales of blocks
    args.a_scales_ld = RoundUp4(shape.m);
    args.b_scales_ld = RoundUp4(BlocksOf(shape.k));
  }
  return ProblemOf(args, dtype);
}

// So many of them, of 16 bits, that lie as bench/python/layouts.py had them.
MatmulProblem ProblemOf(const ShapeResult& result, DType dtype) {
  MatmulProblem problem = PlainProblem(result.shape, dtype);
  problem.batch = result.batch;
  problem.a.batch_stride = problem.b.batch_stride = kPacked;
  if (result.layout.starts_with('t')) {
    problem.a.layout = Layout::kRowsContiguous;
    problem.a.leading_stride = result.shape.m;
  }
  if (result.layout.ends_with('n')) {
    problem.b.layout = Layout::kRowsContiguous;
    problem.b.leading_stride = result.shape.n;
  }
  return problem;
}

// The model of the half for fitting that has these weights, or themselves if no model has. Empty
// for those of the half for judging, which nothing may be fitted to.
std::string OwnerOf(const Weights& weights) {
  const std::string_view fit = ModelWith(Half::kFit, weights);
  if (!fit.empty() || !ModelWith(Half::kJudge, weights).empty()) return std::string(fit);
  return absl::StrCat(weights.n, "x", weights.k);
}

}  // namespace

std::string FeatureTable(const RunResult& run) {
  const cuda::DeviceTraits traits = {.model = run.gpu};
  std::string text = "model,m,n,k,kernel,us";
  for (const char* name : cuda::kModelFeatureNames) absl::StrAppend(&text, ",", name);
  text += "\n";
  for (const ShapeResult& result : run.shapes) {
    const Shape& s = result.shape;
    const MatmulProblem problem = ProblemOf(result, run.dtype);
    const std::string prefix = absl::StrCat(OwnerOf({s.n, s.k}), ",", s.m, ",", s.n, ",", s.k, ",");
    for (const VariantTime& time : result.pool) {
      const std::optional<cuda::GemmVariant> variant = cuda::FindVariant(time.kernel);
      if (!variant.has_value()) continue;
      absl::StrAppend(&text, prefix, time.kernel, ",", time.us);
      const double rough = cuda::RoughSeconds(*variant, problem, traits);
      for (const float value : cuda::FeaturesOf(*variant, problem, traits, rough)) {
        absl::StrAppendFormat(&text, ",%.9g", value);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace gemmd::kernels::bench
