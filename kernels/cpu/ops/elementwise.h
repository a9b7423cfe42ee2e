// Convert, Copy, Fill, Write, Read: ops that touch each element once.

#ifndef GEMMD_KERNELS_CPU_OPS_ELEMENTWISE_H_
#define GEMMD_KERNELS_CPU_OPS_ELEMENTWISE_H_

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

void RunConvert(const ConvertOp& op, const RunContext& context);
void RunCopy(const CopyOp& op, const RunContext& context);
void RunFill(const FillOp& op, const RunContext& context);
void RunWrite(const WriteOp& op, const RunContext& context);
void RunRead(const ReadOp& op, const RunContext& context);

}  // namespace gemmd::kernels::cpu

#endif  // GEMMD_KERNELS_CPU_OPS_ELEMENTWISE_H_
