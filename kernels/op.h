// Op: one step of work, a closed variant. A program is a list of Ops that run in order on one
// device.
//
// Matrix names follow one contract everywhere:  D[m,n] = activation(alpha * A[m,k] . B[n,k]^T +
// beta * C[m,n] + bias[n]). B is always given as [n, k]; a row-major [k, n] matrix is the same view
// with strides {1, n}. Rank 3 adds a leading batch.

#pragma once

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

// Of one number x. All but ReLU are computed in FP32, within a few units of its last place; a
// result below 2^-119 may be 0. NaN stays NaN, +infinity stays, and -infinity gives the limit, 0.
enum class Activation : uint8_t {
  kNone = 0,
  kRelu = 1,         // max(x, 0)
  kSilu = 2,         // x * sigmoid(x)
  kGeluTanh = 3,     // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
  kGeluErf = 4,      // x/2 * (1 + erf(x / sqrt(2)))
  kReluSquared = 5,  // max(x, 0)^2
};
inline constexpr int kActivations = 6;
// "none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"
std::string_view Name(Activation activation);

// What follows a product of n columns before it is rounded: GatedOp's formula, by which d has n/2,
// or n where gates are alone.
struct Gate {
  Activation activation = Activation::kSilu;
  int64_t period = 0;
  float alpha = 1.0f;
  float limit = 0.0f;
  float up_offset = 0.0f;
  bool alone = false;
};

struct MatmulOp {
  Operand a;    // [m, k]
  Operand b;    // [n, k], a's dtype or Multiply's; batch 1 (rank 2) broadcasts over a batched a
  TensorRef d;  // [m, n]; F32, BF16 or F16. With a gate [m, n/2], or n if alone, and E4M3 too
  std::optional<TensorRef>
      c;  // [m, n]; same dtype as d; may be d itself, must not overlap it otherwise
  std::optional<TensorRef> bias;  // [n], F32 or d's dtype; F32 with a gate
  float alpha = 1.0f;             // 0 means a and b are not read: NaN in them does not spread
  float beta = 0.0f;              // 0 means c is not read: NaN in c does not spread
  Activation activation = Activation::kNone;  // kNone with a gate, which has its own
  std::string kernel;  // a kernel to insist on; empty lets the selector choose
  // Chosen by what shipped with the build alone, so that the result's bits are the same whatever a
  // Tuner has measured.
  bool deterministic = false;
  // d = activation(gate) * (up + up_offset) of the product; no c then. The product may be rounded
  // to BF16 in front of it.
  std::optional<Gate> gate;
  std::optional<TensorRef> d_scales;  // of an E4M3 d: F32, [m, ceil(d's columns/128)], any strides
};

// dst = round(src / scale), scales = amax / max_finite(dst) over each block, both FP32 divisions.
// An all-zero block gets scale 1; a scale is never below 2^-126 (a subnormal one would lose bits or
// be flushed). A block with NaN or Inf in it never disturbs other blocks: for E4M3 its scale and
// all its elements are NaN. For E5M2 and I8 amax is over the finite elements; E5M2 keeps NaN and
// infinities, in I8, which has neither, NaN becomes 0 and an infinity +-127.
struct QuantizeOp {
  TensorRef src;     // [rows, k] (or batched); F32, BF16, F16; any strides
  TensorRef dst;     // same shape; E4M3, E5M2 or I8
  TensorRef scales;  // F32, shape ScaleShape(dst.shape, granularity); any strides
  ScaleGranularity granularity = ScaleGranularity::kBlock1x128;  // any but kNone
  // I32, [rows of dst]: row i of dst is that of src with this number. -1: none, and row i of dst
  // and of scales is not written. Both are matrices then, with scales by rows or of 1x128.
  std::optional<TensorRef> rows;
};

// dst = activation(gate) * (up + up_offset), where each row of src holds n columns of gate and n of
// up. With a period p, columns [2pi, 2pi + p) of src are the gates of dst's columns [pi, pi + p),
// and the p columns behind those their ups: 1 alternates, 128 takes turns by blocks, and n, which 0
// stands for, is two halves.
//
// With a limit, gate is min(gate, limit) and up is clamped to [-limit, limit] first. `alpha` goes
// with kSilu, which it makes x * sigmoid(alpha * x). All of it in FP32; NaN stays NaN, in clamps
// too. The result is rounded once, to dst's dtype. E4M3 takes scales of 1x128, and is what
// QuantizeOp makes of the unrounded FP32 results: on one device, bit for bit what a GatedOp into
// F32 and a QuantizeOp leave.
//
// Gates that are alone have no ups: dst = activation(gate), of src's own columns.
struct GatedOp {
  TensorRef src;  // [rows, 2n] or [batch, rows, 2n], n if alone; F32, BF16 or F16; any strides
  TensorRef dst;  // [rows, n] or [batch, rows, n]; F32, BF16, F16 or E4M3
  std::optional<TensorRef> scales;  // of an E4M3 dst: F32, [rows, ceil(n/128)], any strides
  Activation activation = Activation::kSilu;
  int64_t period = 0;      // divides n; 0: n
  float alpha = 1.0f;      // above 0; 1 unless the activation is kSilu
  float limit = 0.0f;      // above 0; 0: none
  float up_offset = 0.0f;  // 0 if alone, and period too
  bool alone = false;
};

// dst = x normalised by rows: y * weight + bias, with y = (x - mean) / sqrt(variance + epsilon)
// where rows are centred (LayerNorm; the variance is the mean of (x - mean)^2), else y = x /
// sqrt(mean of x^2 + epsilon) (RMSNorm). All of it in FP32, sums in an order of the backend's
// choice; NaN or an infinity in a row spoils that row alone. The result is rounded once, to dst's
// dtype. E4M3 takes scales of 1x128, and is quantised from the unrounded FP32 results as
// QuantizeOp does it.
//
// x is src, or with an addend src + addend, rounded to their dtype, which `sum` keeps.
struct NormalizeOp {
  TensorRef src;                    // [rows, n] or [batch, rows, n]; F32, BF16 or F16; any strides
  std::optional<TensorRef> addend;  // src's shape and dtype, any strides
  std::optional<TensorRef> sum;     // likewise, written; may be src or addend itself, must not
                                    // overlap anything otherwise. Only with an addend
  TensorRef dst;                    // same shape; F32, BF16, F16 or E4M3; may not overlap src
  std::optional<TensorRef> scales;  // of an E4M3 dst: F32, [rows, ceil(n/128)], any strides
  std::optional<TensorRef> weight;  // F32 [n]; none: 1
  std::optional<TensorRef> bias;    // F32 [n]; none: 0
  float epsilon = 1e-5f;            // finite, at least 0
  bool centered = false;
};

// How a GroupedMatmulOp's `groups` tells which rows are whose. Rows of no group are never written.
enum class GroupLayout : uint8_t {
  kOffsets = 0,  // [groups + 1]: group g has rows groups[g] up to groups[g + 1]; any starts
  kCounts = 1,  // [groups]: a is [groups, m_max, k]; group g has the first groups[g] rows of item g
  kRowIds = 2,  // [m]: row i is group groups[i]'s, or nobody's if that is -1. A group's rows lie
                // together, and groups in ascending order
  kEnds = 3,    // [groups]: group g ends at groups[g]; it starts at the end of the group before it
                // rounded up to `alignment`
};
inline constexpr int kGroupLayouts = 4;
std::string_view Name(GroupLayout layout);  // "offsets", "counts", "row_ids", "ends"

inline constexpr int64_t kMaxGroups = 512;

// For the rows of each group g: d = activation(alpha * a . b[g]^T + bias[g]), or gated.
//
// `groups` is read when the op runs, so that one program serves every routing. What it says is
// held against the tensors' shapes first: rows that cannot be are left out, and the run ends with
// INVALID_ARGUMENT and the value (data_fault.h). Nothing outside a group's rows of d
// and d_scales is written, whatever `groups` says.
struct GroupedMatmulOp {
  Operand a;  // [m, k]; [groups, m_max, k] for kCounts. Any granularity but 128x128
  Operand b;  // [groups, n, k], a's dtype; scales of a batch
  // Empty, or a matrix [n, k] of its own memory for each group, alike in everything but where they
  // lie. `b` then is StackOf the first one, which says their shapes and is not read itself.
  std::vector<Operand> table;
  TensorRef groups;  // I32, stride 1, a shape as the layout says
  GroupLayout layout = GroupLayout::kOffsets;
  int64_t alignment = 1;  // of kEnds
  TensorRef d;            // [m, n] or [groups, m_max, n]; F32, BF16 or F16. With a gate n/2
                          // columns, and E4M3 too
  std::optional<TensorRef> d_scales;  // of an E4M3 d: F32, [.., m, ceil(n/2/128)], any strides
  std::optional<Gate> gate;           // the product may be rounded to BF16 in front of it
  std::optional<TensorRef> bias;      // [groups, n], F32 or d's dtype (not E4M3)
  float alpha = 1.0f;                 // finite, not 0
  Activation activation = Activation::kNone;  // kNone with a gate, which has its own
  int64_t expected_rows = 0;  // of all groups, for estimates and choice; 0: all that a has
  std::string kernel;         // a kernel to insist on; empty lets the selector choose
};

// For each group g, over its columns of a and b alone: d[g] = alpha * a . b^T + beta * c[g]. The
// gradient of a grouped matmul's weights, whose columns here are the rows there.
//
// `groups` is read when the op runs, by the rules of a GroupedMatmulOp's kOffsets and kEnds, with
// columns in place of rows. A group without columns, or with impossible ones, leaves beta * c, and
// 0 without c. With scales of 1x128 a group starts at a multiple of 128; columns behind its end, up
// to the next multiple, are not read into its sums, whatever they hold.
struct KGroupedMatmulOp {
  Operand a;         // [m, k], k of all groups; any granularity but 128x128
  Operand b;         // [n, k], a's dtype or Multiply's; likewise
  TensorRef groups;  // I32, stride 1: [groups + 1] for kOffsets, [groups] for kEnds
  GroupLayout layout = GroupLayout::kOffsets;  // or kEnds
  int64_t alignment = 1;                       // of kEnds
  TensorRef d;                                 // [groups, m, n]; F32, BF16 or F16
  std::optional<TensorRef> c;                  // d's shape and dtype; may be d itself
  float alpha = 1.0f;                          // finite, not 0
  float beta = 0.0f;                           // 0 means c is not read
  std::string kernel;  // a kernel to insist on; empty lets the selector choose
};

// `groups` times the one matrix, [groups, n, k] with a stride of 0 between them, scales likewise.
Operand StackOf(const Operand& matrix, int64_t groups);
// The matrix of one group, [n, k]: of the table, or of b.
Operand MatrixOf(const GroupedMatmulOp& op, int64_t group);

// How a router's logits become scores.
enum class RouterScores : uint8_t {
  kSoftmax = 0,  // exp(x - m) / the sum of all, m the largest; exp(0) where x is m, infinite or not
  kSigmoid = 1,  // 1 / (1 + exp(-x))
};
inline constexpr int kRouterScores = 2;
std::string_view Name(RouterScores scores);  // "softmax", "sigmoid"

// What groups of experts are compared by.
enum class GroupScore : uint8_t {
  kMax = 0,      // the largest c of their experts
  kTop2Sum = 1,  // the sum of the two largest; of one, where no other may be chosen
};
inline constexpr int kGroupScores = 2;
std::string_view Name(GroupScore score);  // "max", "top2_sum"

inline constexpr int64_t kMaxTopK = 32;

// Each token's experts and their weights, by a router's logits. In FP32: s = scores of logits, c =
// s + bias. The experts of the largest c are chosen, of equal ones the first, and listed in falling
// order. Their weights are s * scale, or renormalised s / (sum of the chosen s + 1e-20) * scale.
//
// With groups, the experts of `top_groups` of them alone may be chosen: those of the largest
// scores, of equal ones the first.
//
// An expert whose logit or c is NaN is not chosen, and its logit counts nowhere; nor is a group
// whose score is NaN, or that has no expert to choose. Where fewer than top_k experts may be
// chosen, the rest are expert -1 with weight 0.
struct ChooseOp {
  TensorRef logits;               // [tokens, experts]; F32, BF16 or F16; any strides
  std::optional<TensorRef> bias;  // F32 [experts], any stride; none: 0
  TensorRef experts;              // I32 [tokens, top_k], written; stride 1 along top_k
  TensorRef weights;              // F32 [tokens, top_k], written; any strides
  RouterScores scores = RouterScores::kSoftmax;
  bool renormalize = false;
  float scale = 1.0f;      // finite, above 0
  int64_t groups = 1;      // of neighbouring experts; divides them
  int64_t top_groups = 1;  // 1 to groups
  GroupScore group_score = GroupScore::kMax;
};

// Where rows go whose experts were chosen by a router. Row r stands for choice j of token t, with
// r = t * top_k + j; rows are ordered by expert, those of one expert by r.
//
// ids[t, j] is an expert, or -1 for none. Anything else counts as none, and the run ends with
// INVALID_ARGUMENT and the value.
struct RouteOp {
  TensorRef ids;        // I32 [tokens, top_k]
  TensorRef offsets;    // I32 [experts + 1], written: where each expert's rows start; for kOffsets
  TensorRef rows;       // I32 [tokens * top_k], written: the token of each row; -1 behind the last
  TensorRef positions;  // I32 [tokens, top_k], written: where the choice's row went; -1: nowhere
};

// dst[t] = sum over j of weights[t, j] * src[positions[t, j]], in FP32 and in the order of j,
// rounded once. A position of -1 is left out. One that src does not have is, too, and the run ends
// with INVALID_ARGUMENT and the value.
struct CombineOp {
  TensorRef src;        // [rows, n]; F32, BF16 or F16
  TensorRef positions;  // I32 [tokens, top_k]
  TensorRef weights;    // F32 [tokens, top_k]
  TensorRef dst;        // [tokens, n]; F32, BF16 or F16
};

// dst = (dst dtype) src, round to nearest even. E4M3 saturates to +-448 and I8 to +-127, infinities
// too; NaN stays NaN, and is 0 in I8. BF16, F16 and E5M2 overflow to infinity. Equal dtypes copy
// the bits; I32 has no other dtype to go to or come from.
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

using Op =
    std::variant<MatmulOp, QuantizeOp, GatedOp, ConvertOp, CopyOp, FillOp, WriteOp, ReadOp,
                 GroupedMatmulOp, RouteOp, CombineOp, KGroupedMatmulOp, NormalizeOp, ChooseOp>;

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

// An op with a gate as two: the product, into a dense d of `dtype` in `slot`, and the gate behind
// it.
MatmulOp ProductOf(const MatmulOp& op, DType dtype, int slot);
GatedOp GatedOf(const Gate& gate, const TensorRef& product, const TensorRef& d,
                const std::optional<TensorRef>& d_scales);

// 2*m*n*k*batch for a matmul, of the rows that a grouped one expects and of all columns of a
// k-grouped one; 0 for the rest.
double Flops(const Op& op);
// Of all groups: what the op says it expects, at most what a has.
int64_t ExpectedRows(const GroupedMatmulOp& op);
// Bytes the op must move at least: each operand once, each result once.
double Bytes(const Op& op);

}  // namespace gemmd::kernels
