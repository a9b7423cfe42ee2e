// Operands that TMA cannot read as they lie, and their copies in front of a matmul, which it can;
// of FP32 ones the BF16 parts.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/operand_copy.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// Of b that lies along its rows there are kernels that read it so: BF16 and FP16.
bool ReadsAlongRows(const MatmulProblem& problem);
// And of a that does beside it.
bool ReadsBothAlongRows(const MatmulProblem& problem);

// Offsets are into the copies' memory; rows of a copy start at multiples of 16 bytes, and those of
// 128 bytes or more at multiples of that.
struct OperandCopies {
  bool a = false;
  bool b = false;
  // How kernels read them, copied or not: along k, or 16-bit ones along their rows.
  Layout a_layout = Layout::kKContiguous;
  Layout b_layout = Layout::kKContiguous;
  int64_t b_offset = 0;  // a's copy is at 0
  int64_t scratch_bytes = 0;

  explicit operator bool() const { return a || b; }
};
OperandCopies OperandCopiesOf(const MatmulProblem& problem);

// Whether a time of it stands for its shape: one with copies in front, or of kernels that read
// operands along their rows, would stand for those without.
bool LiesAsMeasured(const MatmulProblem& problem);

// The problem that is left once the copies are made.
MatmulProblem Readable(const MatmulProblem& problem);

// Modelled, of what does not lie as kernels have it: copies of operands, and stores of rows of D
// that begin at no multiples of 16 bytes. 0 if all lies well; the memory's rate may be unknown, 0.
double MisalignedSeconds(const MatmulProblem& problem, double memory_bytes_per_s);

// Has `args` read the copies at `scratch`, a multiple of 256; returns what makes them.
std::vector<OperandCopyArgs> CopyOperands(const OperandCopies& copies, AnyGemmArgs& args,
                                          std::byte* scratch);

}  // namespace gemmd::kernels::cuda
