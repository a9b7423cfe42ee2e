#include "kernels/cuda/matmul/gemm_op.h"

#include "kernels/cuda/rounding.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kTmaFloats = 4;  // strides of 16 bytes

int64_t KBlocks(const AnyGemmArgs& g) { return CeilDiv(g.k, kScaleBlock); }
int64_t NBlocks(const AnyGemmArgs& g) { return CeilDiv(g.n, kScaleBlock); }

// A's scales as TMA reads them: stride 1 along the rows, the other strides multiples of 16 bytes.
bool TakesScalesOfA(const AnyGemmArgs& g) {
  const ScaleView& s = g.a.scales;
  return reinterpret_cast<uintptr_t>(s.data) % 16 == 0 && (s.row_stride == 1 || g.m == 1) &&
         (KBlocks(g) == 1 || (s.k_stride >= g.m && s.k_stride % kTmaFloats == 0)) &&
         (g.batch == 1 || (s.batch_stride > 0 && s.batch_stride % kTmaFloats == 0));
}

// B's scales: stride 1 along k.
bool TakesScalesOfB(const AnyGemmArgs& g) {
  const ScaleView& s = g.b.scales;
  return (s.k_stride == 1 || KBlocks(g) == 1) && (NBlocks(g) == 1 || s.row_stride >= KBlocks(g));
}

// Layouts of the copies, in floats.
int64_t CopyLdOfA(const AnyGemmArgs& g) { return MMajorLeadingDimension(g.m); }
int64_t CopyBatchOfA(const AnyGemmArgs& g) { return CopyLdOfA(g) * KBlocks(g); }
int64_t CopyLdOfB(const AnyGemmArgs& g) { return RoundUp(KBlocks(g), kTmaFloats); }
int64_t CopyBatchOfB(const AnyGemmArgs& g) { return CopyLdOfB(g) * NBlocks(g); }
int64_t MatricesOfB(const AnyGemmArgs& g) { return g.b.scales.batch_stride == 0 ? 1 : g.batch; }

// Bytes of `count` matrices of `floats` each, or one above the limit.
int64_t BytesUpToLimit(int64_t count, int64_t floats) {
  constexpr int64_t kMaxFloats = kMaxScratchBytes / 4;
  if (count > 0 && floats > kMaxFloats / count) return kMaxScratchBytes + 1;
  return count * floats * 4;
}

}  // namespace

ScaleCopies CopiesOf(const AnyGemmArgs& g) {
  ScaleCopies copies;
  if (!g.b.scales.row_blocks) return copies;
  copies.a = !TakesScalesOfA(g);
  copies.b = !TakesScalesOfB(g);
  if (copies.a) copies.scratch_bytes = BytesUpToLimit(g.batch, CopyBatchOfA(g));
  if (copies.b) {
    copies.b_offset = RoundUp(copies.scratch_bytes, kScratchAlignment);
    copies.scratch_bytes = copies.b_offset + BytesUpToLimit(MatricesOfB(g), CopyBatchOfB(g));
  }
  return copies;
}

ScaleCopies CopiesOfA(const AnyGemmArgs& args) {
  ScaleCopies copies;
  copies.a = !TakesScalesOfA(args);
  if (copies.a) copies.scratch_bytes = BytesUpToLimit(args.batch, CopyBatchOfA(args));
  return copies;
}

GemmArgs GemmArgsOf(const AnyGemmArgs& any, const ScaleCopies& copies, std::byte* scratch) {
  GemmArgs args;
  args.batch = any.batch;
  args.m = any.m;
  args.n = any.n;
  args.k = any.k;
  args.a = static_cast<const uint8_t*>(any.a.data);
  args.lda = any.a.row_stride;
  args.a_batch = any.a.batch_stride;
  const bool blocks = any.b.scales.row_blocks;
  args.a_scales = any.a.scales.data;
  args.a_scales_ld = blocks ? any.a.scales.k_stride : any.a.scales.row_stride;
  args.a_scales_batch = any.a.scales.batch_stride;
  if (copies.a) {
    args.a_scales = reinterpret_cast<const float*>(scratch);
    args.a_scales_ld = CopyLdOfA(any);
    args.a_scales_batch = CopyBatchOfA(any);
  }
  args.b = static_cast<const uint8_t*>(any.b.data);
  args.ldb = any.b.row_stride;
  args.b_batch = any.b.batch_stride;
  args.b_scales = any.b.scales.data;
  args.b_scales_ld = any.b.scales.row_stride;
  args.b_scales_batch = any.b.scales.batch_stride;
  if (copies.b) {
    args.b_scales = reinterpret_cast<const float*>(scratch + copies.b_offset);
    args.b_scales_ld = CopyLdOfB(any);
    args.b_scales_batch = MatricesOfB(any) == 1 ? 0 : CopyBatchOfB(any);
  }
  args.d = any.d.data;
  args.ldd = any.d.row_stride;
  args.d_batch = any.d.batch_stride;
  args.c = any.c.data;
  args.ldc = any.c.row_stride;
  args.c_batch = any.c.batch_stride;
  args.bias = any.bias;
  args.out = any.out == ElementType::kF32    ? OutType::kF32
             : any.out == ElementType::kBF16 ? OutType::kBF16
                                             : OutType::kF16;
  args.bias_is_f32 = any.bias_type == ElementType::kF32;
  args.relu = any.activation == ActivationType::kRelu;
  args.activation = any.activation;
  args.alpha = any.alpha;
  args.beta = any.beta;
  return args;
}

std::optional<ScaleLayoutArgs> CopyOfA(const AnyGemmArgs& any, const ScaleCopies& copies,
                                       std::byte* scratch) {
  if (!copies.a) return std::nullopt;
  ScaleLayoutArgs copy;
  copy.batch = any.batch;
  copy.rows = any.m;
  copy.k_blocks = KBlocks(any);
  copy.src = any.a.scales.data;
  copy.src_batch = any.a.scales.batch_stride;
  copy.src_row = any.a.scales.row_stride;
  copy.src_k = any.a.scales.k_stride;
  copy.dst = reinterpret_cast<float*>(scratch);
  copy.dst_batch = CopyBatchOfA(any);
  copy.dst_ld = CopyLdOfA(any);
  return copy;
}

// The transpose's rows are b's k blocks: what comes out is dense along them.
std::optional<ScaleLayoutArgs> CopyOfB(const AnyGemmArgs& any, const ScaleCopies& copies,
                                       std::byte* scratch) {
  if (!copies.b) return std::nullopt;
  ScaleLayoutArgs copy;
  copy.batch = MatricesOfB(any);
  copy.rows = KBlocks(any);
  copy.k_blocks = NBlocks(any);
  copy.src = any.b.scales.data;
  copy.src_batch = any.b.scales.batch_stride;
  copy.src_row = any.b.scales.k_stride;
  copy.src_k = any.b.scales.row_stride;
  copy.dst = reinterpret_cast<float*>(scratch + copies.b_offset);
  copy.dst_batch = CopyBatchOfB(any);
  copy.dst_ld = CopyLdOfB(any);
  return copy;
}

}  // namespace gemmd::kernels::cuda
