#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/op_fields.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "server/service/wire/convert.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::Dims;
using kernels::TensorRef;

// Where something stands in an op, put into words only when something is wrong there.
struct Field {
  Field(const char* of, int at = -1, const char* in = "") : name(of), index(at), part(in) {}
  const char* name;  // "" is the op itself
  int index;         // of a repeated one
  const char* part;  // ".scales"
  Field scales() const { return {name, index, ".scales"}; }
};

// Converts one op. The first thing that is wrong stays; nothing is read after it.
class OpConverter {
 public:
  OpConverter(SlotTable& slots, int index, const Inputs* data, ConvertedOps& out)
      : slots_(slots), index_(index), data_(data), out_(out) {}

  absl::Status Run(const v1::Op& op) {
    switch (op.kind_case()) {
      case v1::Op::kMatmul:
        Add(op.matmul());
        break;
      case v1::Op::kQuantize:
        Add(op.quantize());
        break;
      case v1::Op::kGated:
        Add(op.gated());
        break;
      case v1::Op::kConvert:
        AddPair<kernels::ConvertOp>(op.convert());
        break;
      case v1::Op::kCopy:
        AddPair<kernels::CopyOp>(op.copy());
        break;
      case v1::Op::kFill:
        Add(op.fill());
        break;
      case v1::Op::kWrite:
        Add(op.write());
        break;
      case v1::Op::kRead:
        Add(op.read());
        break;
      case v1::Op::kGroupedMatmul:
        Add(op.grouped_matmul());
        break;
      case v1::Op::kChoose:
        Add(op.choose());
        break;
      case v1::Op::kRoute:
        Add(op.route());
        break;
      case v1::Op::kCombine:
        Add(op.combine());
        break;
      case v1::Op::kKGroupedMatmul:
        Add(op.k_grouped_matmul());
        break;
      case v1::Op::kNormalize:
        Add(op.normalize());
        break;
      case v1::Op::KIND_NOT_SET:
        return NoKind();
    }
    return std::move(status_);
  }

 private:
  absl::Status NoKind() const {
    const auto& kinds = *v1::Op::descriptor()->FindOneofByName("kind");
    std::vector<std::string> names;
    for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
    return absl::InvalidArgumentError(absl::StrCat("ops[", index_,
                                                   "] has no kind this server knows; set one of ",
                                                   absl::StrJoin(names, ", ")));
  }

  bool ok() const { return status_.ok(); }

  std::string Path(const Field& field) const {
    std::string path = absl::StrCat("ops[", index_, "].", Text(kind_));
    if (*field.name != 0) absl::StrAppend(&path, ".", field.name);
    if (field.index >= 0) absl::StrAppend(&path, "[", field.index, "]");
    return absl::StrCat(path, field.part, ": ");
  }

  void Fail(const Field& field, std::string_view text) {
    if (ok()) status_ = absl::InvalidArgumentError(absl::StrCat(Path(field), Text(text)));
  }

  void Fail(const Field& field, const absl::Status& status) {
    if (!ok()) return;
    const std::string message = absl::StrCat(Path(field), status.message());
    status_ = WithReason(absl::Status(status.code(), message), ReasonOf(status));
  }

  void Fill(const google::protobuf::RepeatedField<int64_t>& values, const Field& field,
            std::string_view what, Dims& dims) {
    if (values.size() > kernels::kMaxRank) {
      return Fail(field, absl::StrCat(Text(what), " has rank ", values.size(), ", limit ",
                                      kernels::kMaxRank, "; fold dimensions together"));
    }
    dims.rank = values.size();
    for (int i = 0; i < values.size(); ++i) dims[i] = values[i];
  }

  std::optional<int> SlotOf(std::string_view buffer_id, const Field& field) {
    if (!ok()) return {};
    const auto handle = HandleFromBytes(buffer_id);
    if (!handle) {
      Fail(field, absl::StrCat("buffer_id has ", buffer_id.size(),
                               " bytes, not 16; use the one CreateBuffer gave"));
      return {};
    }
    const auto slot = slots_.Resolve(*handle);
    if (slot.ok()) return *slot;
    Fail(field, slot.status());
    return {};
  }

  void Fill(const v1::Tensor& tensor, bool given, const Field& field, TensorRef& out) {
    if (!given) return Fail(field, "missing; this tensor is required");
    const auto slot = SlotOf(tensor.buffer_id(), field);
    if (!slot) return;
    const BufferSpec& spec = slots_.slot(*slot).ref.buffer->spec();
    out.slot = *slot;
    out.offset_bytes = tensor.offset_bytes();
    if (tensor.dtype() != v1::DTYPE_UNSPECIFIED) {
      const auto dtype = Convert(tensor.dtype(), field.name);
      if (!dtype.ok()) return Fail(field, std::string(dtype.status().message()));
      out.dtype = *dtype;
    } else if (spec.dtype) {
      out.dtype = *spec.dtype;
    } else {
      return Fail(field, "dtype is unspecified and the buffer was created without one; give it");
    }
    if (tensor.shape_size() > 0) {
      Fill(tensor.shape(), field, "shape", out.shape);
    } else if (spec.shape.rank > 0) {
      out.shape = spec.shape;
    } else {
      return Fail(field, "shape is empty and the buffer was created without one; give it");
    }
    if (tensor.strides_size() == 0) {
      out.strides = kernels::RowMajorStrides(out.shape);
    } else {
      Fill(tensor.strides(), field, "strides", out.strides);
    }
  }

  void Fill(const v1::Tensor& tensor, bool given, const Field& field,
            std::optional<TensorRef>& out) {
    if (given) Fill(tensor, true, field, out.emplace());
  }

  void Fill(const v1::Operand& operand, bool given, const Field& field, kernels::Operand& out) {
    Fill(operand.values(), given && operand.has_values(), field, out.values);
    Fill(operand.granularity(), field, out.granularity);
    Fill(operand.scales(), operand.has_scales(), field.scales(), out.scales);
  }

  void Fill(const v1::Gate& gate, bool given, const Field& field,
            std::optional<kernels::Gate>& out) {
    if (!given) return;
    Fill(gate.activation(), field, out.emplace().activation);
    out->period = gate.period();
    if (gate.has_alpha()) out->alpha = gate.alpha();
    out->limit = gate.limit();
    out->up_offset = gate.up_offset();
    out->alone = gate.alone();
  }

  void Fill(v1::ScaleGranularity granularity, const Field& field, kernels::ScaleGranularity& out) {
    FillEnum(v1::ScaleGranularity_IsValid(granularity), granularity, field, "granularity", out);
  }
  void Fill(v1::Activation activation, const Field& field, kernels::Activation& out) {
    FillEnum(v1::Activation_IsValid(activation), activation, field, "activation", out);
  }
  void Fill(v1::GroupLayout layout, kernels::GroupLayout& out) {
    FillEnum(v1::GroupLayout_IsValid(layout), layout, "", "layout", out);
  }
  void Fill(v1::RouterScores scores, kernels::RouterScores& out) {
    FillEnum(v1::RouterScores_IsValid(scores), scores, "", "scores", out);
  }
  void Fill(v1::GroupScore score, kernels::GroupScore& out) {
    FillEnum(v1::GroupScore_IsValid(score), score, "", "group_score", out);
  }

  // The two enums have the same numbers.
  template <class T>
  void FillEnum(bool valid, int value, const Field& field, const char* what, T& out) {
    if (!valid) return Fail(field, absl::StrCat(what, " ", value, " is not known here"));
    out = static_cast<T>(value);
  }

  void FillKernel(const std::string& name, std::string& out) {
    if (name.size() > 128) return Fail("", "kernel is longer than any name");
    out = name;
  }

  template <class T>
  T& Emplace(std::string_view kind = kernels::OpKind<T>::kName) {
    kind_ = kind;
    return std::get<T>(out_.ops.emplace_back(std::in_place_type<T>));
  }

  void Add(const v1::Matmul& matmul) {
    auto& op = Emplace<kernels::MatmulOp>();
    Fill(matmul.a(), matmul.has_a(), "a", op.a);
    Fill(matmul.b(), matmul.has_b(), "b", op.b);
    Fill(matmul.d(), matmul.has_d(), "d", op.d);
    Fill(matmul.c(), matmul.has_c(), "c", op.c);
    Fill(matmul.bias(), matmul.has_bias(), "bias", op.bias);
    if (matmul.has_alpha()) op.alpha = matmul.alpha();
    op.beta = matmul.beta();
    Fill(matmul.activation(), "", op.activation);
    FillKernel(matmul.kernel(), op.kernel);
    Fill(matmul.gate(), matmul.has_gate(), "gate", op.gate);
    Fill(matmul.d_scales(), matmul.has_d_scales(), "d_scales", op.d_scales);
  }

  void Add(const v1::Quantize& quantize) {
    auto& op = Emplace<kernels::QuantizeOp>();
    Fill(quantize.src(), quantize.has_src(), "src", op.src);
    Fill(quantize.dst(), quantize.has_dst(), "dst", op.dst);
    Fill(quantize.granularity(), "", op.granularity);
    Fill(quantize.rows(), quantize.has_rows(), "rows", op.rows);
    Fill(quantize.scales(), quantize.has_scales(), "scales", op.scales);
  }

  void Add(const v1::Gated& gated) {
    auto& op = Emplace<kernels::GatedOp>();
    Fill(gated.src(), gated.has_src(), "src", op.src);
    Fill(gated.dst(), gated.has_dst(), "dst", op.dst);
    Fill(gated.scales(), gated.has_scales(), "scales", op.scales);
    if (gated.has_alpha()) op.alpha = gated.alpha();
    op.period = gated.period();
    op.limit = gated.limit();
    op.up_offset = gated.up_offset();
    op.alone = gated.alone();
    Fill(gated.activation(), "", op.activation);
  }

  void Add(const v1::Normalize& normalize) {
    auto& op = Emplace<kernels::NormalizeOp>();
    Fill(normalize.src(), normalize.has_src(), "src", op.src);
    Fill(normalize.dst(), normalize.has_dst(), "dst", op.dst);
    Fill(normalize.scales(), normalize.has_scales(), "scales", op.scales);
    Fill(normalize.addend(), normalize.has_addend(), "addend", op.addend);
    Fill(normalize.sum(), normalize.has_sum(), "sum", op.sum);
    Fill(normalize.weight(), normalize.has_weight(), "weight", op.weight);
    Fill(normalize.bias(), normalize.has_bias(), "bias", op.bias);
    if (normalize.has_epsilon()) op.epsilon = normalize.epsilon();
    op.centered = normalize.centered();
  }

  // The groups' matrices: b, or a table of them.
  void FillMatrices(const v1::GroupedMatmul& grouped, kernels::GroupedMatmulOp& op) {
    const int count = grouped.weights_size();
    if (count == 0) return Fill(grouped.b(), grouped.has_b(), "b", op.b);
    if (grouped.has_b()) return Fail("", "b and weights are both given; leave one out");
    if (count > kernels::kMaxGroups) {
      return Fail("weights", absl::StrCat(count, " matrices, limit ", kernels::kMaxGroups,
                                          "; multiply them in several ops"));
    }
    op.table.resize(count);
    for (int g = 0; g < count; ++g) Fill(grouped.weights(g), true, {"weights", g}, op.table[g]);
    op.b = kernels::StackOf(op.table[0], count);
  }

  void Add(const v1::GroupedMatmul& grouped) {
    auto& op = Emplace<kernels::GroupedMatmulOp>();
    Fill(grouped.a(), grouped.has_a(), "a", op.a);
    FillMatrices(grouped, op);
    Fill(grouped.groups(), grouped.has_groups(), "groups", op.groups);
    Fill(grouped.d(), grouped.has_d(), "d", op.d);
    Fill(grouped.d_scales(), grouped.has_d_scales(), "d_scales", op.d_scales);
    Fill(grouped.bias(), grouped.has_bias(), "bias", op.bias);
    Fill(grouped.gate(), grouped.has_gate(), "gate", op.gate);
    Fill(grouped.activation(), "", op.activation);
    Fill(grouped.layout(), op.layout);
    FillKernel(grouped.kernel(), op.kernel);
    if (grouped.alignment() != 0) op.alignment = grouped.alignment();
    if (grouped.has_alpha()) op.alpha = grouped.alpha();
    op.expected_rows = grouped.expected_rows();
  }

  void Add(const v1::KGroupedMatmul& grouped) {
    auto& op = Emplace<kernels::KGroupedMatmulOp>();
    Fill(grouped.a(), grouped.has_a(), "a", op.a);
    Fill(grouped.b(), grouped.has_b(), "b", op.b);
    Fill(grouped.groups(), grouped.has_groups(), "groups", op.groups);
    Fill(grouped.d(), grouped.has_d(), "d", op.d);
    Fill(grouped.c(), grouped.has_c(), "c", op.c);
    Fill(grouped.layout(), op.layout);
    FillKernel(grouped.kernel(), op.kernel);
    if (grouped.alignment() != 0) op.alignment = grouped.alignment();
    if (grouped.has_alpha()) op.alpha = grouped.alpha();
    op.beta = grouped.beta();
  }

  void Add(const v1::Choose& choose) {
    auto& op = Emplace<kernels::ChooseOp>();
    Fill(choose.logits(), choose.has_logits(), "logits", op.logits);
    Fill(choose.bias(), choose.has_bias(), "bias", op.bias);
    Fill(choose.experts(), choose.has_experts(), "experts", op.experts);
    Fill(choose.weights(), choose.has_weights(), "weights", op.weights);
    Fill(choose.scores(), op.scores);
    op.renormalize = choose.renormalize();
    if (choose.has_scale()) op.scale = choose.scale();
    if (choose.groups() != 0) op.groups = choose.groups();
    if (choose.top_groups() != 0) op.top_groups = choose.top_groups();
    Fill(choose.group_score(), op.group_score);
  }

  void Add(const v1::Route& route) {
    auto& op = Emplace<kernels::RouteOp>();
    Fill(route.ids(), route.has_ids(), "ids", op.ids);
    Fill(route.offsets(), route.has_offsets(), "offsets", op.offsets);
    Fill(route.rows(), route.has_rows(), "rows", op.rows);
    Fill(route.positions(), route.has_positions(), "positions", op.positions);
  }

  void Add(const v1::Combine& combine) {
    auto& op = Emplace<kernels::CombineOp>();
    Fill(combine.src(), combine.has_src(), "src", op.src);
    Fill(combine.positions(), combine.has_positions(), "positions", op.positions);
    Fill(combine.weights(), combine.has_weights(), "weights", op.weights);
    Fill(combine.dst(), combine.has_dst(), "dst", op.dst);
  }

  template <class T, class Proto>
  void AddPair(const Proto& pair) {
    auto& op = Emplace<T>();
    Fill(pair.src(), pair.has_src(), "src", op.src);
    Fill(pair.dst(), pair.has_dst(), "dst", op.dst);
  }

  void Add(const v1::Fill& fill) {
    auto& op = Emplace<kernels::FillOp>();
    op.value = fill.value();
    Fill(fill.dst(), fill.has_dst(), "dst", op.dst);
  }

  // What a Write or Read moves to or from memory that it names, instead of with the message.
  void FillShared(const v1::SharedBytes& shared, const Field& field, bool written,
                  const TensorRef& moved, TensorRef& out) {
    const auto slot = SlotOf(shared.buffer_id(), field);
    if (!slot) return;
    absl::Status fits = CheckShared(slots_.slot(*slot).ref, shared.offset_bytes(),
                                    kernels::SizeBytes(moved.dtype), written);
    if (!fits.ok()) return Fail(field, fits);
    out = {.slot = *slot,
           .offset_bytes = shared.offset_bytes(),
           .dtype = moved.dtype,
           .shape = moved.shape,
           .strides = kernels::RowMajorStrides(moved.shape)};
    out_.shared.emplace_back(out_.ops.size() - 1, written ? "read" : "write");
  }

  void AddShared(const v1::Write& write) {
    auto& op = Emplace<kernels::CopyOp>("write");
    if (!write.data().empty()) return Fail("", "data and from are both given; leave one out");
    Fill(write.dst(), write.has_dst(), "dst", op.dst);
    FillShared(write.from(), "from", /*written=*/false, op.dst, op.src);
  }

  void AddShared(const v1::Read& read) {
    auto& op = Emplace<kernels::CopyOp>("read");
    Fill(read.src(), read.has_src(), "src", op.src);
    FillShared(read.to(), "to", /*written=*/true, op.src, op.dst);
  }

  void Add(const v1::Write& write) {
    if (write.has_from()) return AddShared(write);
    auto& op = Emplace<kernels::WriteOp>();
    const size_t input = out_.inputs.size();
    op.input = static_cast<int>(input);
    if (data_ == nullptr) {
      out_.inputs.push_back(absl::MakeConstSpan(
          reinterpret_cast<const std::byte*>(write.data().data()), write.data().size()));
    } else if (input < data_->size()) {
      out_.inputs.push_back((*data_)[input]);
    } else {
      return Fail("", "data is missing; give the tensor's bytes");
    }
    Fill(write.dst(), write.has_dst(), "dst", op.dst);
  }

  void Add(const v1::Read& read) {
    if (read.has_to()) return AddShared(read);
    auto& op = Emplace<kernels::ReadOp>();
    op.output = out_.outputs++;
    Fill(read.src(), read.has_src(), "src", op.src);
  }

  SlotTable& slots_;
  const int index_;
  const Inputs* const data_;
  ConvertedOps& out_;
  std::string_view kind_;  // as the request calls it
  absl::Status status_;
};

}  // namespace

absl::StatusOr<ConvertedOps> ConvertOps(const OpList& ops, int max_ops, SlotTable& slots,
                                        const Inputs* data) {
  if (ops.size() > max_ops) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat("the program has ", ops.size(), " ops, limit ",
                                                  max_ops, "; send it in parts")),
        reason::kOpsLimit);
  }
  ConvertedOps converted;
  converted.ops.reserve(ops.size());
  for (int i = 0; i < ops.size(); ++i) {
    GEMMD_RETURN_IF_ERROR(OpConverter(slots, i, data, converted).Run(ops[i]));
  }
  if (!converted.shared.empty()) {
    auto names = NamesOf(converted.ops);
    for (const auto& [op, name] : converted.shared) (*names)[op] = name;
    converted.names = std::move(names);
  }
  return converted;
}

}  // namespace gemmd::server
