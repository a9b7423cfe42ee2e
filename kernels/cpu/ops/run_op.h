// Every op but Matmul, run by the CPU. What each computes is its struct's contract (op.h).

#pragma once

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/op.h"

namespace gemmd::kernels::cpu {

void RunOp(const QuantizeOp& op, const RunContext& context);
void RunOp(const GatedOp& op, const RunContext& context);
void RunOp(const ConvertOp& op, const RunContext& context);
void RunOp(const CopyOp& op, const RunContext& context);
void RunOp(const FillOp& op, const RunContext& context);
void RunOp(const WriteOp& op, const RunContext& context);
void RunOp(const ReadOp& op, const RunContext& context);
void RunOp(const GroupedMatmulOp& op, const RunContext& context);
void RunOp(const KGroupedMatmulOp& op, const RunContext& context);
void RunOp(const ChooseOp& op, const RunContext& context);
void RunOp(const RouteOp& op, const RunContext& context);
void RunOp(const CombineOp& op, const RunContext& context);
void RunOp(const NormalizeOp& op, const RunContext& context);

}  // namespace gemmd::kernels::cpu
