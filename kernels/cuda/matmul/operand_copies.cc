#include "kernels/cuda/matmul/operand_copies.h"

#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

int64_t CopyLd(int64_t k, int64_t size) { return RoundUp(k, kTmaBytes / size); }

// `lines` of so many `elements`, along which it has to lie.
bool Reads(const OperandTraits& operand, Layout layout, int64_t batch, int64_t lines,
           int64_t elements) {
  const int64_t size = SizeBytes(operand.dtype);
  if (operand.layout != layout || operand.alignment_bytes % kTmaBytes != 0) return false;
  const int64_t ld = operand.leading_stride;
  if (lines > 1 && (ld < elements || ld * size % kTmaBytes != 0 || ld > kTmaMaxStride / size)) {
    return false;
  }
  const int64_t apart = operand.batch_stride == kPacked ? lines * ld : operand.batch_stride;
  return batch == 1 || apart * size % kTmaBytes == 0;
}
bool ReadsAlongK(const OperandTraits& operand, int64_t batch, int64_t rows, int64_t k) {
  return Reads(operand, Layout::kKContiguous, batch, rows, k);
}

int64_t Matrices(const OperandTraits& operand, int64_t batch) {
  return operand.batch_stride == 0 ? 1 : batch;
}

// Or one byte more than a matmul's scratch may have.
int64_t CopyBytes(const OperandTraits& operand, int64_t batch, int64_t rows, int64_t k) {
  const int64_t size = SizeBytes(operand.dtype);
  const double bytes = 1.0 * Matrices(operand, batch) * rows * CopyLd(k, size) * size;
  if (bytes > kMaxScratchBytes) return kMaxScratchBytes + 1;
  return RoundUp(Matrices(operand, batch) * rows * CopyLd(k, size) * size, kScratchAlignment);
}

void Copied(OperandTraits& operand, int64_t k) {
  operand.layout = Layout::kKContiguous;
  operand.leading_stride = CopyLd(k, SizeBytes(operand.dtype));
  operand.alignment_bytes = kTmaBytes;
  if (operand.batch_stride != 0) operand.batch_stride = kPacked;
}

OperandCopyArgs Copy(AnyOperand& operand, int64_t batch, int64_t rows, int64_t k, int64_t size,
                     std::byte* to) {
  OperandCopyArgs copy;
  copy.batch = operand.batch_stride == 0 ? 1 : batch;
  copy.rows = rows;
  copy.k = k;
  copy.element_bytes = static_cast<int>(size);
  copy.src = operand.data;
  copy.src_batch = operand.batch_stride;
  copy.src_row = operand.row_stride;
  copy.src_k = operand.k_stride;
  copy.dst = to;
  copy.dst_ld = CopyLd(k, size);
  operand.data = to;
  operand.row_stride = copy.dst_ld;
  operand.k_stride = 1;
  if (operand.batch_stride != 0) operand.batch_stride = rows * copy.dst_ld;
  return copy;
}

}  // namespace

bool ReadsAlongRows(const MatmulProblem& p) {
  const DType type = p.b.dtype;
  return p.a.dtype == type && (type == DType::kBF16 || type == DType::kF16) &&
         Reads(p.b, Layout::kRowsContiguous, p.batch, p.k, p.n);
}

bool ReadsBothAlongRows(const MatmulProblem& p) {
  return ReadsAlongRows(p) && Reads(p.a, Layout::kRowsContiguous, p.batch, p.k, p.m);
}

OperandCopies OperandCopiesOf(const MatmulProblem& p) {
  OperandCopies copies;
  copies.a = !ReadsAlongK(p.a, p.batch, p.m, p.k) && !ReadsBothAlongRows(p);
  copies.b = !ReadsAlongK(p.b, p.batch, p.n, p.k) && !ReadsAlongRows(p);
  if (copies.a) copies.b_offset = CopyBytes(p.a, p.batch, p.m, p.k);
  copies.scratch_bytes = copies.b_offset + (copies.b ? CopyBytes(p.b, p.batch, p.n, p.k) : 0);
  return copies;
}

bool LiesAsMeasured(const MatmulProblem& problem) {
  return !OperandCopiesOf(problem) && !ReadsAlongRows(problem);
}

MatmulProblem Readable(const MatmulProblem& problem) {
  const OperandCopies copies = OperandCopiesOf(problem);
  MatmulProblem readable = problem;
  if (copies.a) Copied(readable.a, problem.k);
  if (copies.b) Copied(readable.b, problem.k);
  return readable;
}

double MisalignedSeconds(const MatmulProblem& p, double memory_bytes_per_s) {
  // Stored by threads, in pieces that begin and end within sectors: as measured on an H200.
  constexpr double kShiftedStores = 1e12;
  double seconds = 0;
  if (p.d.alignment_bytes % kTmaBytes != 0) {
    seconds += 1.0 * p.batch * p.m * p.n * SizeBytes(p.d.dtype) / kShiftedStores;
  }
  const OperandCopies copies = OperandCopiesOf(p);
  if (!copies) return seconds;
  // Turned on its way, an operand takes longer.
  constexpr double kTurned = 1.6;
  const auto bytes = [&p](const OperandTraits& operand, int64_t rows) {
    const double turned = operand.layout == Layout::kKContiguous ? 1 : kTurned;
    return 2.0 * turned * Matrices(operand, p.batch) * rows * p.k * SizeBytes(operand.dtype);
  };
  // Both by one launch, behind which the matmul's own is hidden in part.
  constexpr double kHiddenSeconds = 0.4e-6;
  return seconds +
         StreamSeconds((copies.a ? bytes(p.a, p.m) : 0) + (copies.b ? bytes(p.b, p.n) : 0),
                       memory_bytes_per_s) -
         kHiddenSeconds;
}

std::vector<OperandCopyArgs> CopyOperands(const OperandCopies& copies, AnyGemmArgs& args,
                                          std::byte* scratch) {
  std::vector<OperandCopyArgs> made;
  if (copies.a) {
    made.push_back(Copy(args.a, args.batch, args.m, args.k, ElementBytes(args.type), scratch));
  }
  if (copies.b) {
    made.push_back(Copy(args.b, args.batch, args.n, args.k, ElementBytes(args.b_type),
                        scratch + copies.b_offset));
  }
  return made;
}

}  // namespace gemmd::kernels::cuda
