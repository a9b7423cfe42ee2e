#include "kernels/cuda/matmul/problem_args.h"

#include "kernels/cuda/ops/scale_layout.h"

namespace gemmd::kernels::cuda {
namespace {

static_assert(static_cast<int>(ElementType::kF32) == static_cast<int>(DType::kF32));
static_assert(static_cast<int>(ElementType::kE5M2) == static_cast<int>(DType::kE5M2));
static_assert(static_cast<int>(ActivationType::kGeluErf) == static_cast<int>(Activation::kGeluErf));
static_assert(static_cast<int>(ActivationType::kReluSquared) ==
              static_cast<int>(Activation::kReluSquared));

int64_t Blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

void* AddressOf(int alignment_bytes) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(alignment_bytes));
}

ScaleTraits LikedBest(ScaleGranularity granularity, int64_t rows, int64_t k) {
  switch (granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kPerTensor:
      return {};
    case ScaleGranularity::kPerRow:
      return {.batch_stride = rows, .row_stride = 1};
    case ScaleGranularity::kBlock1x128: {
      const int64_t ld = MMajorLeadingDimension(rows);
      return {.batch_stride = Blocks(k) * ld, .row_stride = 1, .k_stride = ld};
    }
    case ScaleGranularity::kBlock128x128:
      return {.batch_stride = Blocks(rows) * Blocks(k), .row_stride = Blocks(k), .k_stride = 1};
  }
  return {};
}

ScaleView ScalesOf(const OperandTraits& traits, int64_t batch, int64_t rows, int64_t k) {
  if (traits.granularity == ScaleGranularity::kNone) return {};
  const ScaleTraits scales =
      traits.scales ? *traits.scales : LikedBest(traits.granularity, rows, k);
  const bool shared = !traits.scales && (batch == 1 || traits.batch_stride == 0);
  return {.data = static_cast<const float*>(AddressOf(scales.alignment_bytes)),
          .batch_stride = shared ? 0 : scales.batch_stride,
          .row_stride = scales.row_stride,
          .k_stride = scales.k_stride,
          .row_blocks = traits.granularity == ScaleGranularity::kBlock128x128};
}

// Where an operand's or a result's elements lie. Of one that is strided both ways it is only said
// that neither stride is 1.
AnyResult PlaceOf(const OperandTraits& traits, int64_t batch, int64_t rows, int64_t cols) {
  const bool by_rows = traits.layout == Layout::kRowsContiguous;
  AnyResult place;
  place.data = AddressOf(traits.alignment_bytes);
  place.row_stride = by_rows ? 1 : traits.leading_stride;
  place.col_stride = by_rows ? traits.leading_stride : traits.layout == Layout::kStrided ? 2 : 1;
  if (batch > 1) {
    place.batch_stride = traits.batch_stride == kPacked
                             ? (by_rows ? cols : rows) * traits.leading_stride
                             : traits.batch_stride;
  }
  return place;
}

AnyOperand OperandOf(const OperandTraits& traits, int64_t batch, int64_t rows, int64_t k) {
  const AnyResult place = PlaceOf(traits, batch, rows, k);
  return {.data = place.data,
          .batch_stride = place.batch_stride,
          .row_stride = place.row_stride,
          .k_stride = place.col_stride,
          .scales = ScalesOf(traits, batch, rows, k)};
}

}  // namespace

AnyGemmArgs UnplacedArgs(const MatmulProblem& problem) {
  const MatmulProblem& p = problem;
  AnyGemmArgs args;
  args.batch = p.batch;
  args.m = p.m;
  args.n = p.n;
  args.k = p.k;
  args.type = static_cast<ElementType>(p.a.dtype);
  args.b_type = static_cast<ElementType>(p.b.dtype);
  args.a = OperandOf(p.a, p.batch, p.m, p.k);
  args.b = OperandOf(p.b, p.batch, p.n, p.k);
  args.out = static_cast<ElementType>(p.d.dtype);
  args.d = PlaceOf(p.d, p.batch, p.m, p.n);
  if (p.has_c) args.c = PlaceOf(p.c, p.batch, p.m, p.n);
  if (p.has_bias) args.bias = AddressOf(256);
  args.bias_stride = p.bias_stride;
  args.alpha = p.reads_operands ? 1.0f : 0.0f;
  args.beta = p.has_c ? 1.0f : 0.0f;
  args.activation = static_cast<ActivationType>(p.activation);
  return args;
}

}  // namespace gemmd::kernels::cuda
