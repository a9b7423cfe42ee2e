#include "kernels/cuda/matmul/operand_copies.h"

#include <utility>

#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/ops/float_parts.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

// The lines of a copy, and how long they are.
struct Lines {
  int64_t count, elements;
};
Lines LinesOf(Layout layout, int64_t rows, int64_t k) {
  return layout == Layout::kRowsContiguous ? Lines{k, rows} : Lines{rows, k};
}

// How an element of `size` bytes is copied: as it is, or an FP32 one as BF16 parts, matrix by
// matrix.
struct CopiedElement {
  int parts;
  int64_t bytes;  // of a part

  explicit constexpr CopiedElement(int64_t size)
      : parts(size == 4 ? kFloatParts : 1), bytes(size == 4 ? 2 : size) {}
  // Rows of a line or more begin at lines.
  int64_t Ld(int64_t elements) const {
    return RoundUp(elements, (elements * bytes >= kLineBytes ? kLineBytes : kTmaBytes) / bytes);
  }
  int64_t MatrixElements(const Lines& lines) const {
    return parts * lines.count * Ld(lines.elements);
  }
};
CopiedElement ElementOf(const OperandTraits& operand) {
  return CopiedElement(SizeBytes(operand.dtype));
}
bool HasParts(const MatmulProblem& p) { return p.a.dtype == DType::kF32; }

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
bool Are16Bits(const MatmulProblem& p) {
  return p.a.dtype == p.b.dtype && (p.a.dtype == DType::kBF16 || p.a.dtype == DType::kF16);
}
bool LiesAlongRows(const OperandTraits& operand) {
  return operand.layout == Layout::kRowsContiguous;
}
bool ReadsA(const MatmulProblem& p, Layout layout) {
  return layout == Layout::kRowsContiguous ? Reads(p.a, layout, p.batch, p.k, p.m)
                                           : Reads(p.a, layout, p.batch, p.m, p.k);
}
bool ReadsB(const MatmulProblem& p, Layout layout) {
  return layout == Layout::kRowsContiguous ? Reads(p.b, layout, p.batch, p.k, p.n)
                                           : Reads(p.b, layout, p.batch, p.n, p.k);
}

// Kernels read b along its rows, and then a along its own or not: operands stay as they lie, and
// their copies, too. Of an a along its rows beside a b along k one is turned: what is less to copy.
bool TakesBAlongRows(const MatmulProblem& p) {
  if (!Are16Bits(p)) return false;
  if (LiesAlongRows(p.b) || !LiesAlongRows(p.a)) return LiesAlongRows(p.b);
  const int64_t along_rows = p.n + (ReadsA(p, Layout::kRowsContiguous) ? 0 : p.m);
  const int64_t along_k = p.m + (ReadsB(p, Layout::kKContiguous) ? 0 : p.n);
  return along_rows < along_k;
}

int64_t Matrices(const OperandTraits& operand, int64_t batch) {
  return operand.batch_stride == 0 ? 1 : batch;
}

// Or one byte more than a matmul's scratch may have.
int64_t CopyBytes(const OperandTraits& operand, int64_t batch, const Lines& lines) {
  const CopiedElement element = ElementOf(operand);
  const double matrix = 1.0 * element.parts * lines.count * element.Ld(lines.elements);
  if (matrix * Matrices(operand, batch) * element.bytes > kMaxScratchBytes) {
    return kMaxScratchBytes + 1;
  }
  return RoundUp(Matrices(operand, batch) * element.MatrixElements(lines) * element.bytes,
                 kScratchAlignment);
}

void Copied(OperandTraits& operand, Layout layout, const Lines& lines) {
  operand.layout = layout;
  const CopiedElement element = ElementOf(operand);
  operand.leading_stride = element.Ld(lines.elements);
  const bool at_lines = operand.leading_stride * element.bytes % kLineBytes == 0;
  operand.alignment_bytes = at_lines ? kLineBytes : kTmaBytes;
  if (operand.batch_stride != 0) operand.batch_stride = kPacked;
}

// A copy along the rows is one along k of the turned matrix.
OperandCopyArgs Copy(AnyOperand& operand, Layout layout, int64_t batch, const Lines& lines,
                     int64_t size, std::byte* to) {
  int64_t &line = operand.row_stride, &element = operand.k_stride;
  const bool turned = layout == Layout::kRowsContiguous;
  if (turned) std::swap(line, element);
  OperandCopyArgs copy;
  copy.batch = operand.batch_stride == 0 ? 1 : batch;
  copy.rows = lines.count;
  copy.k = lines.elements;
  copy.element_bytes = static_cast<int>(size);
  copy.src = operand.data;
  copy.src_batch = operand.batch_stride;
  copy.src_row = line;
  copy.src_k = element;
  copy.dst = to;
  copy.dst_ld = CopiedElement(size).Ld(lines.elements);
  operand.data = to;
  line = copy.dst_ld;
  element = 1;
  if (turned) std::swap(line, element);
  if (operand.batch_stride != 0) operand.batch_stride = CopiedElement(size).MatrixElements(lines);
  return copy;
}

}  // namespace

bool ReadsAlongRows(const MatmulProblem& p) {
  return Are16Bits(p) && ReadsB(p, Layout::kRowsContiguous);
}

bool ReadsBothAlongRows(const MatmulProblem& p) {
  return ReadsAlongRows(p) && ReadsA(p, Layout::kRowsContiguous);
}

OperandCopies OperandCopiesOf(const MatmulProblem& p) {
  OperandCopies copies;
  if (TakesBAlongRows(p)) {
    copies.b_layout = Layout::kRowsContiguous;
    if (LiesAlongRows(p.a)) copies.a_layout = Layout::kRowsContiguous;
  }
  copies.a = HasParts(p) || !ReadsA(p, copies.a_layout);
  copies.b = HasParts(p) || !ReadsB(p, copies.b_layout);
  if (copies.a) copies.b_offset = CopyBytes(p.a, p.batch, LinesOf(copies.a_layout, p.m, p.k));
  copies.scratch_bytes = copies.b_offset;
  if (copies.b) {
    copies.scratch_bytes += CopyBytes(p.b, p.batch, LinesOf(copies.b_layout, p.n, p.k));
  }
  return copies;
}

bool LiesAsMeasured(const MatmulProblem& problem) {
  return !OperandCopiesOf(problem) && !ReadsAlongRows(problem);
}

MatmulProblem Readable(const MatmulProblem& problem) {
  const OperandCopies copies = OperandCopiesOf(problem);
  MatmulProblem readable = problem;
  const MatmulProblem& p = problem;
  if (copies.a) Copied(readable.a, copies.a_layout, LinesOf(copies.a_layout, p.m, p.k));
  if (copies.b) Copied(readable.b, copies.b_layout, LinesOf(copies.b_layout, p.n, p.k));
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
  const auto bytes = [&p](const OperandTraits& operand, Layout copied, int64_t rows) {
    const double turned = operand.layout == copied ? 1 : kTurned;
    const CopiedElement element = ElementOf(operand);
    const double moved = SizeBytes(operand.dtype) + 1.0 * element.parts * element.bytes;
    return moved * turned * Matrices(operand, p.batch) * rows * p.k;
  };
  // Both by one launch, behind which the matmul's own is hidden in part.
  constexpr double kHiddenSeconds = 0.4e-6;
  return seconds +
         StreamSeconds((copies.a ? bytes(p.a, copies.a_layout, p.m) : 0) +
                           (copies.b ? bytes(p.b, copies.b_layout, p.n) : 0),
                       memory_bytes_per_s) -
         kHiddenSeconds;
}

std::vector<OperandCopyArgs> CopyOperands(const OperandCopies& copies, AnyGemmArgs& args,
                                          std::byte* scratch) {
  std::vector<OperandCopyArgs> made;
  if (copies.a) {
    made.push_back(Copy(args.a, copies.a_layout, args.batch,
                        LinesOf(copies.a_layout, args.m, args.k), ElementBytes(args.type),
                        scratch));
  }
  if (copies.b) {
    made.push_back(Copy(args.b, copies.b_layout, args.batch,
                        LinesOf(copies.b_layout, args.n, args.k), ElementBytes(args.b_type),
                        scratch + copies.b_offset));
  }
  return made;
}

}  // namespace gemmd::kernels::cuda
