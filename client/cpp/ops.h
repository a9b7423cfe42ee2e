// Steps of work, and the list of them that runs as one program: in order, all or nothing at
// validation. Shapes and rules as in gemmd/v1/types.proto.
//
//   OpList ops;
//   ops.Add(Write{x, bytes}).Add(Matmul{.a = x, .b = w, .d = y}).Add(Read{y});
//   absl::StatusOr<Result> result = session.Execute(ops);

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/tensor.h"
#include "client/cpp/types.h"
#include "client/cpp/wire_bytes.h"

namespace gemmd::client {

// A tensor and, when it is quantised, its FP32 scales.
struct Operand {
  Operand() = default;
  Operand(Tensor plain) : values(std::move(plain)) {}  // NOLINT: a plain tensor is an operand
  Operand(Tensor quantised, ScaleGranularity shared_by, Tensor its_scales)
      : values(std::move(quantised)), granularity(shared_by), scales(std::move(its_scales)) {}

  Tensor values;  // [rows, k] or [batch, rows, k]
  ScaleGranularity granularity = ScaleGranularity::kNone;
  Tensor scales;  // shape as the granularity says
};

// activation(gate) * (up + up_offset) of a matmul's n columns: Gated's formula, by which D has n/2.
struct Gate {
  Activation activation = Activation::kSilu;
  int64_t period = 0;
  float alpha = 1;
  float limit = 0;
  float up_offset = 0;
  bool alone = false;  // no ups: D = activation(product), n columns
};

// D[m,n] = activation(alpha * A[m,k] . B[n,k]^T + beta * C[m,n] + bias[n])
struct Matmul {
  Operand a;         // [m, k] or [batch, m, k]
  Operand b;         // [n, k], or [batch, n, k]; rank 2 serves every batch. A row-major [k, n]:
                     // Transposed(). A's dtype, or one of E4M3 and E5M2 as A's
  Tensor d;          // [m, n] or [batch, m, n]; F32, BF16 or F16; overlaps no input but c. With a
                     // gate n/2 columns, or n if alone, and E4M3 too
  Tensor c = {};     // [m, n], D's dtype, may be D itself; needed when beta is not 0
  Tensor bias = {};  // [n]; F32 or D's dtype; F32 with a gate
  float alpha = 1;
  float beta = 0;
  Activation activation = Activation::kNone;
  std::string kernel = {};        // a name of ListKernels to insist on; empty: the server chooses
  std::optional<Gate> gate = {};  // none: the product itself. No c or activation beside it
  Tensor d_scales = {};           // of an E4M3 d: FP32, [.., ceil(its columns/128)], written
};

// dst = round(src / scale), scale = amax / largest finite of dst's dtype, a block of `granularity`.
struct Quantize {
  Tensor src;     // F32, BF16 or F16
  Tensor dst;     // same shape, or as many rows as `rows` has; E4M3, E5M2 or I8
  Tensor scales;  // FP32, written
  ScaleGranularity granularity;
  // I32, [rows of dst]: row i of dst is row rows[i] of src; -1: row i is not written. Then src and
  // dst are matrices, with scales kPerRow or kBlock1x128.
  Tensor rows = {};
};

// dst = activation(gate) * (up + up_offset), in FP32 and rounded once. Each row of src holds n
// columns of gate and n of up: two halves, or `period` of gate and `period` of up by turns. An E4M3
// dst is quantised as Quantize does, ready to be the next matmul's a:
//
//   ops.Add(Gated{.src = gate_up, .dst = y, .scales = ScalesIn(room, y.shape(), kBlock1x128)})
//       .Add(Matmul{.a = {y, kBlock1x128, scales}, .b = down, .d = out});
struct Gated {
  Tensor src;          // [rows, 2n] or [batch, rows, 2n], n if alone; F32, BF16 or F16
  Tensor dst;          // [rows, n] or [batch, rows, n]; F32, BF16, F16 or E4M3
  Tensor scales = {};  // of an E4M3 dst: FP32, [rows, ceil(n/128)], written
  Activation activation = Activation::kSilu;
  int64_t period = 0;   // divides n; 0: n
  float alpha = 1;      // kSilu becomes x * sigmoid(alpha * x)
  float limit = 0;      // above 0: min(gate, limit), and up within [-limit, limit], first
  float up_offset = 0;  // added to up
  bool alone = false;   // no ups: dst = activation(src)
};

// dst = y * weight + bias by rows, y = (x - mean) / sqrt(variance + epsilon) where they are centred
// (LayerNorm), else x / sqrt(mean of x^2 + epsilon) (RMSNorm). In FP32 and rounded once; an E4M3
// dst is quantised as Quantize does, ready to be the next matmul's a. x is src, or src + addend,
// rounded to their dtype.
struct Normalize {
  Tensor src;             // [rows, n] or [batch, rows, n]; F32, BF16 or F16
  Tensor dst;             // same shape; F32, BF16, F16 or E4M3
  Tensor scales = {};     // of an E4M3 dst: FP32, [rows, ceil(n/128)], written
  Tensor weight = {};     // FP32 [n]; empty: 1
  Tensor bias = {};       // FP32 [n]; empty: 0
  float epsilon = 1e-5f;  // finite, at least 0
  bool centered = false;
  Tensor addend = {};  // src's shape and dtype; empty: none
  Tensor sum = {};     // likewise, written: src + addend; may be either of them; empty: not kept
};

// For the rows of each group g: d = activation(alpha * a . b[g]^T + bias[g]), or gated. `groups` is
// read when the op runs: one plan serves every routing. Rows of no group are not written. An
// impossible number in `groups` ends the run with INVALID_ARGUMENT.
//
//   layout    groups        group g's rows
//   kOffsets  [groups + 1]  groups[g] up to groups[g + 1]
//   kCounts   [groups]      the first groups[g] of item g of a [groups, m_max, k]
//   kRowIds   [m]           those whose groups[i] is g; -1: nobody's; ordered by group
//   kEnds     [groups]      up to groups[g], from the end before it rounded up to `alignment`
struct GroupedMatmul {
  Operand a;       // [m, k] or [groups, m_max, k]; any granularity but kBlock128x128
  Operand b = {};  // [groups, n, k]; empty with `weights`
  Tensor groups;   // I32, dense
  GroupLayout layout = GroupLayout::kOffsets;
  int64_t alignment = 1;          // of kEnds
  Tensor d;                       // [.., n], or n/2 with a gate; F32, BF16, F16; gated E4M3 too
  Tensor d_scales = {};           // of an E4M3 d: FP32, [.., ceil(n/256)], written
  std::optional<Gate> gate = {};  // none: the product itself
  Tensor bias = {};               // [groups, n]; F32 or d's dtype
  float alpha = 1;                // not 0
  Activation activation = Activation::kNone;  // kNone beside a gate
  int64_t expected_rows = 0;  // of all groups, for estimates alone; 0: all that a has
  std::string kernel = {};
  // Instead of b: a matrix [n, k] for each group, in any buffer; alike in everything but the place.
  std::vector<Operand> weights = {};
};

// For each group g, over its columns of a and b alone: d[g] = alpha * a . b^T + beta * c[g]: the
// gradient of a GroupedMatmul's weights. `groups` is read when the op runs, by the rules of
// GroupedMatmul's kOffsets and kEnds, with columns in place of rows. A group without columns leaves
// beta * c, and 0 without c. With scales of 1x128 groups start at multiples of 128 (kEnds with an
// alignment of 128); they end anywhere.
struct KGroupedMatmul {
  Operand a;      // [m, k], k of all groups together; any granularity but kBlock128x128
  Operand b;      // [n, k]; a's dtype, or one of E4M3 and E5M2 as a's
  Tensor groups;  // I32, dense: [groups + 1] for kOffsets, [groups] for kEnds
  GroupLayout layout = GroupLayout::kOffsets;  // or kEnds
  int64_t alignment = 1;                       // of kEnds
  Tensor d;                                    // [groups, m, n]; F32, BF16 or F16
  Tensor c = {};                               // as d; may be d itself; needed when beta is not 0
  float alpha = 1;                             // not 0
  float beta = 0;
  std::string kernel = {};
};

// Each token's experts and weights from a router's logits, in FP32: s = scores of logits, c = s +
// bias. The experts of the largest c are chosen, of equal ones the first, in falling order. Weights
// are s * scale, or s / (sum of the chosen s) * scale. NaN is not chosen; where fewer than top_k
// may be, the rest are -1 with weight 0. For RouteRows and Combine:
//
//   ops.Add(ChooseExperts{.logits = logits, .experts = ids, .weights = weights})
//       .Add(RouteRows{ids, offsets, rows, positions});
struct ChooseExperts {
  Tensor logits;     // [tokens, experts], 1 to 512 experts; F32, BF16 or F16
  Tensor bias = {};  // F32 [experts], for the choice alone; empty: 0
  Tensor experts;    // I32 [tokens, top_k], written; top_k 1 to 32, dense along it
  Tensor weights;    // F32 [tokens, top_k], written
  RouterScores scores = RouterScores::kSoftmax;
  bool renormalize = true;  // divide weights by their sum
  float scale = 1;          // finite, above 0
  int64_t groups = 1;       // of neighbouring experts; divides them
  int64_t top_groups = 1;   // so many may be chosen from, those of the largest scores
  GroupScore group_score = GroupScore::kMax;
};

// Which row each choice of a router goes to: by expert, then by token, then by choice. `offsets` is
// what GroupedMatmul takes, `rows` what Quantize gathers by, `positions` what Combine reads. An
// id of -1 is no expert; one beyond them ends the run with INVALID_ARGUMENT.
struct RouteRows {
  Tensor ids;        // I32 [tokens, top_k]
  Tensor offsets;    // I32 [experts + 1], written
  Tensor rows;       // I32 [tokens * top_k], written: each row's token; -1 behind the last
  Tensor positions;  // I32 [tokens, top_k], written: each choice's row; -1 without an expert
};

// dst[t] = sum over j of weights[t, j] * src[positions[t, j]], in FP32 and rounded once.
struct Combine {
  Tensor src;        // [rows, n]; F32, BF16 or F16
  Tensor positions;  // I32 [tokens, top_k]; -1 is left out
  Tensor weights;    // F32 [tokens, top_k]
  Tensor dst;        // [tokens, n]; F32, BF16 or F16
};

// dst = src in dst's dtype, to nearest even; E4M3 and I8 saturate, others overflow to infinity.
struct Convert {
  Tensor src;
  Tensor dst;
};

// Same dtype and shape; strides may differ. Must not overlap. The way between devices: a program
// runs on the device that it writes, and reads other devices' buffers by Copy alone.
struct Copy {
  Tensor src;
  Tensor dst;
};

struct Fill {
  Tensor dst;
  double value;
};

// Bytes of the request into a tensor: dense, row-major, little-endian, exactly its size. Add copies
// them. For much data use Buffer::Upload.
struct Write {
  Tensor dst;
  absl::string_view data;
};

// `data` as bytes, for Write and for transfers.
template <typename T>
absl::string_view AsBytes(absl::Span<const T> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)};
}

// A tensor into bytes of the reply: Result::output(i), i counting the Reads.
struct Read {
  Tensor src;
};

// Holds the ops as the bytes that go on the wire, so that running one list again costs a copy of
// them, and with much inline data none. Copyable; const use from several threads is safe.
class OpList {
 public:
  OpList& Add(const Matmul& op);
  OpList& Add(const Quantize& op);
  OpList& Add(const Gated& op);
  OpList& Add(const Convert& op);
  OpList& Add(const Copy& op);
  OpList& Add(const Fill& op);
  OpList& Add(const Write& op);
  OpList& Add(const Read& op);
  OpList& Add(const GroupedMatmul& op);
  OpList& Add(const KGroupedMatmul& op);
  OpList& Add(const ChooseExperts& op);
  OpList& Add(const RouteRows& op);
  OpList& Add(const Combine& op);
  OpList& Add(const Normalize& op);

  void Clear();

  int size() const { return size_; }
  int reads() const { return reads_; }                    // outputs that a run returns
  int64_t inline_bytes() const { return inline_bytes_; }  // data of the Writes
  // The first invalid tensor among the ops, with its place: "op 3 (matmul): b: ...". Execute,
  // Submit and CreatePlan return it without sending anything.
  const absl::Status& status() const { return status_; }

  // For the library: the Writes and Reads among wire().
  struct Inlined {
    bool is_write;
    Tensor tensor;
    size_t begin, end;   // of the op in wire()
    int64_t data_bytes;  // the last ones of a Write, its data
  };
  absl::Span<const Inlined> inlined() const { return inlined_; }
  // One of them encoded, with its bytes in shared memory: at an offset in a buffer.
  static void AppendShared(const Inlined& op, const Handle& buffer, int64_t offset_bytes,
                           std::string& out);
  // SharedBytes, as Write, Read and PlanRun have it.
  static void AppendPlace(int field, const Handle& buffer, int64_t offset_bytes, std::string& out);

  // `repeated Op ops = 2`, as ExecuteRequest, Batch and CreatePlanRequest all have it.
  absl::string_view wire() const { return wire_.bytes(); }
  // The same, kept as it is until WireBytes::Release, whatever becomes of the list.
  WireBytes::Block* Share() const { return wire_.Share(); }

 private:
  // Takes the status of each of `tensors`; false once the list is invalid.
  bool Check(absl::string_view op, std::initializer_list<std::pair<const char*, const Tensor*>>);

  WireBytes wire_;
  std::vector<Inlined> inlined_;
  int size_ = 0;
  int reads_ = 0;
  int64_t inline_bytes_ = 0;
  absl::Status status_;
};

}  // namespace gemmd::client
