#include <algorithm>
#include <cstring>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/run_op.h"
#include "kernels/cpu/runs.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kElementsAtOnce = 512;  // elements converted at once, on the stack

// n elements of `size` bytes between any two strides.
void CopyRun(int size, const std::byte* src, int64_t src_stride, std::byte* dst, int64_t dst_stride,
             int64_t n) {
  if (dst_stride == 1) return Gather(size, src, src_stride, n, dst);
  if (src_stride == 1) return Scatter(size, src, n, dst, dst_stride);
  alignas(64) std::byte dense[kElementsAtOnce * 4];
  for (int64_t i = 0; i < n; i += kElementsAtOnce) {
    const int64_t part = std::min(kElementsAtOnce, n - i);
    Gather(size, src + i * src_stride * size, src_stride, part, dense);
    Scatter(size, dense, part, dst + i * dst_stride * size, dst_stride);
  }
}

void CopyAll(const Dims& shape, int size, const std::byte* src, const Dims& src_strides,
             std::byte* dst, const Dims& dst_strides, const RunContext& context) {
  const Runs runs = PlanRuns(shape, src_strides, dst_strides);
  ForEachRun(runs, context, [&](int64_t from, int64_t to, int64_t n) {
    CopyRun(size, src + from * size, runs.src_strides[2], dst + to * size, runs.dst_strides[2], n);
  });
}

// Any two dtypes, by way of FP32, which holds every value of the others exactly: one rounding.
void ConvertRun(const ConvertOp& op, const std::byte* src, int64_t src_stride, std::byte* dst,
                int64_t dst_stride, int64_t n) {
  const int src_size = SizeBytes(op.src.dtype);
  const int dst_size = SizeBytes(op.dst.dtype);
  alignas(64) std::byte dense[kElementsAtOnce * 4];
  alignas(64) float values[kElementsAtOnce];
  for (int64_t i = 0; i < n; i += kElementsAtOnce) {
    const int64_t part = std::min(kElementsAtOnce, n - i);
    const std::byte* from = src + i * src_stride * src_size;
    std::byte* to = dst + i * dst_stride * dst_size;
    if (src_stride != 1) {
      Gather(src_size, from, src_stride, part, dense);
      from = dense;
    }
    ToF32(op.src.dtype, from, part, values);
    FromF32(op.dst.dtype, values, part, dst_stride == 1 ? to : dense);
    if (dst_stride != 1) Scatter(dst_size, dense, part, to, dst_stride);
  }
}

}  // namespace

void RunOp(const ConvertOp& op, const RunContext& context) {
  if (op.src.dtype == op.dst.dtype) return RunOp(CopyOp{op.src, op.dst}, context);
  const std::byte* src = Address(op.src, context.bindings);
  std::byte* dst = Address(op.dst, context.bindings);
  const Runs runs = PlanRuns(op.src.shape, op.src.strides, op.dst.strides);
  ForEachRun(runs, context, [&](int64_t from, int64_t to, int64_t n) {
    ConvertRun(op, src + from * SizeBytes(op.src.dtype), runs.src_strides[2],
               dst + to * SizeBytes(op.dst.dtype), runs.dst_strides[2], n);
  });
}

void RunOp(const CopyOp& op, const RunContext& context) {
  CopyAll(op.src.shape, SizeBytes(op.src.dtype), Address(op.src, context.bindings), op.src.strides,
          Address(op.dst, context.bindings), op.dst.strides, context);
}

void RunOp(const FillOp& op, const RunContext& context) {
  const int size = SizeBytes(op.dst.dtype);
  alignas(64) std::byte pattern[kElementsAtOnce * 4];
  FromDouble(op.dst.dtype, op.value, pattern);
  for (int64_t i = 1; i < kElementsAtOnce; ++i) std::memcpy(pattern + i * size, pattern, size);
  std::byte* dst = Address(op.dst, context.bindings);
  const Runs runs = PlanRuns(op.dst.shape, op.dst.strides, op.dst.strides);
  const int64_t stride = runs.dst_strides[2];
  ForEachRun(runs, context, [&](int64_t, int64_t to, int64_t n) {
    for (int64_t i = 0; i < n; i += kElementsAtOnce) {
      Scatter(size, pattern, std::min(kElementsAtOnce, n - i), dst + (to + i * stride) * size,
              stride);
    }
  });
}

void RunOp(const WriteOp& op, const RunContext& context) {
  const HostBytes& input = context.bindings.inputs[op.input];
  if (input.runs().empty()) return;
  const Dims dense = RowMajorStrides(op.dst.shape);
  std::byte* dst = Address(op.dst, context.bindings);
  if (input.runs().size() > 1 && op.dst.strides == dense) return input.CopyTo(dst);
  std::vector<std::byte> gathered(input.runs().size() > 1 ? input.size() : 0);
  if (!gathered.empty()) input.CopyTo(gathered.data());
  CopyAll(op.dst.shape, SizeBytes(op.dst.dtype),
          gathered.empty() ? input.runs().front().data() : gathered.data(), dense, dst,
          op.dst.strides, context);
}

void RunOp(const ReadOp& op, const RunContext& context) {
  CopyAll(op.src.shape, SizeBytes(op.src.dtype), Address(op.src, context.bindings), op.src.strides,
          context.bindings.outputs[op.output].data(), RowMajorStrides(op.src.shape), context);
}

}  // namespace gemmd::kernels::cpu
