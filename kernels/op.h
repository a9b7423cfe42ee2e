// Op: one step of work, a closed variant. A program is a list of Ops that run in order on one
// device.
//
// Matrix names follow one contract everywhere:  D[m,n] = activation(alpha * A[m,k] . B[n,k]^T +
// beta * C[m,n] + bias[n]). B is always given as [n, k]; a row-major [k, n] matrix is the same view
// with strides {1, n}. Rank 3 adds a leading batch.

#ifndef GEMMD_KERNELS_OP_H_
#define GEMMD_KERNELS_OP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace gemmd::kernels {

// How many elements of an operand share one FP32 scale. value = stored * scale.
// "rows" are an operand's m (of A) or n (of B); blocks run along k. Scale shapes; those of a batch
// lead with it, and are [batch, 1] for kPerTensor. A matmul's operand may have [1] there too, which
// all of the batch then shares; Quantize gives each item of a batch a scale.
enum class ScaleGranularity : uint8_t {
  kNone = 0,          // no scales tensor
  kPerTensor = 1,     // [1]
  kPerRow = 2,        // [rows]
  kBlock1x128 = 3,    // [rows, ceil(k/128)]
  kBlock128x128 = 4,  // [ceil(rows/128), ceil(k/128)]
};
std::string_view Name(ScaleGranularity granularity);  // "none", "tensor", "row", "1x128", "128x128"

inline constexpr int64_t kScaleBlock = 128;

// The scales' shape for values of `shape` ([rows, k] or [batch, rows, k]). Rank 0 for kNone.
Dims ScaleShape(const Dims& shape, ScaleGranularity granularity);

struct Operand {
  TensorRef values;  // [rows, k] or [batch, rows, k]
  ScaleGranularity granularity = ScaleGranularity::kNone;
  // F32, shape ScaleShape(values.shape, granularity), or [1] for kPerTensor; any strides.
  std::optional<TensorRef> scales;
};

enum class Activation : uint8_t { kNone = 0, kRelu = 1 };

struct MatmulOp {
  Operand a;    // [m, k]
  Operand b;    // [n, k]; batch 1 (rank 2) broadcasts over a batched a
  TensorRef d;  // [m, n]; F32, BF16 or F16
  std::optional<TensorRef>
      c;  // [m, n]; same dtype as d; may be d itself, must not overlap it otherwise
  std::optional<TensorRef> bias;  // [n], F32 or d's dtype
  float alpha = 1.0f;             // 0 means a and b are not read: NaN in them does not spread
  float beta = 0.0f;              // 0 means c is not read: NaN in c does not spread
  Activation activation = Activation::kNone;
  std::string kernel;  // a kernel to insist on; empty lets the selector choose
};

// dst = round(src / scale), scales = amax / max_finite(dst) over each block, both FP32 divisions.
// An all-zero block gets scale 1; a scale is never below 2^-126 (a subnormal one would lose bits or
// be flushed). A block with NaN or Inf in it never disturbs other blocks: for E4M3 its scale and
// all its elements are NaN; for I8, which has no NaN, amax is over the finite elements, NaN becomes
// 0 and an infinity +-127.
struct QuantizeOp {
  TensorRef src;     // [rows, k] (or batched); F32, BF16, F16; any strides
  TensorRef dst;     // same shape; E4M3 or I8
  TensorRef scales;  // F32, shape ScaleShape(src.shape, granularity); any strides
  ScaleGranularity granularity = ScaleGranularity::kBlock1x128;  // any but kNone
};

// dst = (dst dtype) src, round to nearest even. E4M3 saturates to +-448 and I8 to +-127, infinities
// too; NaN stays NaN, and is 0 in I8. BF16 and F16 overflow to infinity. Equal dtypes copy the
// bits.
struct ConvertOp {
  TensorRef src;
  TensorRef dst;  // same shape
};

struct CopyOp {  // same dtype and shape, strides may differ
  TensorRef src;
  TensorRef dst;
};

struct FillOp {
  TensorRef dst;
  double value = 0;  // converted to dst's dtype as Convert does
};

struct WriteOp {  // bytes carried by the request, dense row-major, into dst
  TensorRef dst;
  int input = 0;  // index into Bindings::inputs
};

struct ReadOp {  // src, dense row-major, into bytes that the reply carries
  TensorRef src;
  int output = 0;  // index into Bindings::outputs
};

using Op = std::variant<MatmulOp, QuantizeOp, ConvertOp, CopyOp, FillOp, WriteOp, ReadOp>;

// "matmul", "quantize", ... : the label `op` of metrics and replies.
std::string_view Name(const Op& op);

enum class Access : uint8_t { kRead, kWrite };

// Calls `fn` for every tensor that `op` names, inputs before outputs. c is a read even when beta is
// 0.
void ForEachTensor(const Op& op, absl::FunctionRef<void(const TensorRef&, Access)> fn);

// What validation knows of a slot before it is bound to memory.
struct SlotInfo {
  int64_t size_bytes = 0;
  bool read_only = false;  // a published buffer: no op may write it
};

struct IoSize {
  absl::Span<const int64_t> input_bytes;   // the length of each inline input
  absl::Span<const int64_t> output_bytes;  // the length of each inline output
};

// Checks every rule that does not depend on the device: ranks, shapes, strides, overflow, bounds,
// dtypes, scale shapes, aliasing, inline lengths. Errors are INVALID_ARGUMENT (FAILED_PRECONDITION
// for a write to a read-only slot), start with the op's index and kind, and name value, limit and
// remedy. Aliasing is judged within a slot, by byte ranges: two slots must not share memory, so
// the caller gives a buffer one slot however often it is named.
absl::Status ValidateOps(absl::Span<const Op> ops, absl::Span<const SlotInfo> slots,
                         const IoSize& io);

// Slots that some op writes; the rest are only read.
std::vector<bool> WrittenSlots(absl::Span<const Op> ops, int num_slots);

// 2*m*n*k*batch for a matmul, 0 for the rest.
double Flops(const Op& op);
// Bytes the op must move at least: each operand once, each result once.
double Bytes(const Op& op);

}  // namespace gemmd::kernels

#endif  // GEMMD_KERNELS_OP_H_
