#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "server/service/wire/convert.h"

namespace gemmd::server {
namespace {

using kernels::Dims;
using kernels::TensorRef;

// Converts one op's tensors; the field path is only built when something is wrong.
class OpConverter {
 public:
  OpConverter(SlotTable& slots, int index, const Inputs* data, ConvertedOps& out)
      : slots_(slots), index_(index), data_(data), out_(out) {}

  absl::Status Add(const v1::Op& op) {
    switch (op.kind_case()) {
      case v1::Op::kMatmul:
        return Add(op.matmul());
      case v1::Op::kQuantize:
        return Add(op.quantize());
      case v1::Op::kGated:
        return Add(op.gated());
      case v1::Op::kConvert:
        return AddPair<kernels::ConvertOp>("convert", op.convert());
      case v1::Op::kCopy:
        return AddPair<kernels::CopyOp>("copy", op.copy());
      case v1::Op::kFill:
        return Add(op.fill());
      case v1::Op::kWrite:
        return Add(op.write());
      case v1::Op::kRead:
        return Add(op.read());
      case v1::Op::kGroupedMatmul:
        return Add(op.grouped_matmul());
      case v1::Op::kRoute:
        return Add(op.route());
      case v1::Op::kCombine:
        return Add(op.combine());
      case v1::Op::kKGroupedMatmul:
        return Add(op.k_grouped_matmul());
      case v1::Op::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("ops[", index_,
                     "] has no kind this server knows; set one of matmul, quantize, gated, "
                     "convert, copy, fill, write, read, grouped_matmul, "
                     "route, combine, k_grouped_matmul"));
  }

 private:
  absl::Status Error(std::string_view field, std::string_view text) const {
    return absl::InvalidArgumentError(
        absl::StrCat("ops[", index_, "].", Text(field), ": ", Text(text)));
  }

  absl::Status FillDims(const google::protobuf::RepeatedField<int64_t>& values,
                        std::string_view field, std::string_view what, Dims& dims) const {
    if (values.size() > kernels::kMaxRank) {
      return Error(field, absl::StrCat(Text(what), " has rank ", values.size(), ", limit ",
                                       kernels::kMaxRank, "; fold dimensions together"));
    }
    dims.rank = values.size();
    for (int i = 0; i < values.size(); ++i) dims[i] = values[i];
    return absl::OkStatus();
  }

  absl::Status Annotate(std::string_view field, const absl::Status& status) const {
    return WithReason(absl::Status(status.code(), absl::StrCat("ops[", index_, "].", Text(field),
                                                               ": ", status.message())),
                      ReasonOf(status));
  }

  absl::StatusOr<int> SlotOf(std::string_view buffer_id, std::string_view field) {
    const auto handle = HandleFromBytes(buffer_id);
    if (!handle) {
      return Error(field, absl::StrCat("buffer_id has ", buffer_id.size(),
                                       " bytes, not 16; use the one CreateBuffer gave"));
    }
    auto slot = slots_.Resolve(*handle);
    return slot.ok() ? std::move(slot) : Annotate(field, slot.status());
  }

  absl::Status FillTensor(const v1::Tensor& tensor, bool given, std::string_view field,
                          TensorRef& out) {
    if (!given) return Error(field, "missing; this tensor is required");
    const auto slot = SlotOf(tensor.buffer_id(), field);
    if (!slot.ok()) return slot.status();
    const BufferSpec& spec = slots_.slot(*slot).ref.buffer->spec();
    out.slot = *slot;
    out.offset_bytes = tensor.offset_bytes();
    if (tensor.dtype() != v1::DTYPE_UNSPECIFIED) {
      auto dtype = Convert(tensor.dtype(), field);
      if (!dtype.ok()) return Error(field, std::string(dtype.status().message()));
      out.dtype = *dtype;
    } else if (spec.dtype) {
      out.dtype = *spec.dtype;
    } else {
      return Error(field, "dtype is unspecified and the buffer was created without one; give it");
    }
    if (tensor.shape_size() > 0) {
      if (auto filled = FillDims(tensor.shape(), field, "shape", out.shape); !filled.ok()) {
        return filled;
      }
    } else if (spec.shape.rank > 0) {
      out.shape = spec.shape;
    } else {
      return Error(field, "shape is empty and the buffer was created without one; give it");
    }
    if (tensor.strides_size() == 0) {
      out.strides = kernels::RowMajorStrides(out.shape);
      return absl::OkStatus();
    }
    return FillDims(tensor.strides(), field, "strides", out.strides);
  }

  absl::Status FillOperand(const v1::Operand& operand, bool given, std::string_view field,
                           kernels::Operand& out) {
    const auto values = operand.has_values();
    if (auto s = FillTensor(operand.values(), given && values, field, out.values); !s.ok())
      return s;
    if (!v1::ScaleGranularity_IsValid(operand.granularity())) {
      return Error(field, absl::StrCat("granularity ", static_cast<int>(operand.granularity()),
                                       " is not known here"));
    }
    out.granularity = static_cast<kernels::ScaleGranularity>(operand.granularity());
    if (!operand.has_scales()) return absl::OkStatus();
    return FillTensor(operand.scales(), true, absl::StrCat(Text(field), ".scales"),
                      out.scales.emplace());
  }

  absl::Status FillActivation(v1::Activation activation, std::string_view field,
                              kernels::Activation& out) const {
    if (!v1::Activation_IsValid(activation)) {
      return Error(field,
                   absl::StrCat("activation ", static_cast<int>(activation), " is not known here"));
    }
    out = static_cast<kernels::Activation>(activation);
    return absl::OkStatus();
  }

  template <typename T>
  T& Emplace() {
    return std::get<T>(out_.ops.emplace_back(std::in_place_type<T>));
  }

  absl::Status Add(const v1::Matmul& matmul) {
    auto& op = Emplace<kernels::MatmulOp>();
    if (auto s = FillOperand(matmul.a(), matmul.has_a(), "matmul.a", op.a); !s.ok()) return s;
    if (auto s = FillOperand(matmul.b(), matmul.has_b(), "matmul.b", op.b); !s.ok()) return s;
    if (auto s = FillTensor(matmul.d(), matmul.has_d(), "matmul.d", op.d); !s.ok()) return s;
    if (matmul.has_c()) {
      if (auto s = FillTensor(matmul.c(), true, "matmul.c", op.c.emplace()); !s.ok()) return s;
    }
    if (matmul.has_bias()) {
      if (auto s = FillTensor(matmul.bias(), true, "matmul.bias", op.bias.emplace()); !s.ok()) {
        return s;
      }
    }
    if (matmul.has_alpha()) op.alpha = matmul.alpha();
    op.beta = matmul.beta();
    if (auto s = FillActivation(matmul.activation(), "matmul", op.activation); !s.ok()) return s;
    if (matmul.kernel().size() > 128) return Error("matmul", "kernel is longer than any name");
    op.kernel = matmul.kernel();
    if (matmul.has_gate()) {
      if (auto s = FillGate(matmul.gate(), "matmul.gate", op.gate.emplace()); !s.ok()) return s;
    }
    return FillOptional(matmul.d_scales(), matmul.has_d_scales(), "matmul.d_scales", op.d_scales);
  }

  absl::Status Add(const v1::Quantize& quantize) {
    auto& op = Emplace<kernels::QuantizeOp>();
    if (auto s = FillTensor(quantize.src(), quantize.has_src(), "quantize.src", op.src); !s.ok()) {
      return s;
    }
    if (auto s = FillTensor(quantize.dst(), quantize.has_dst(), "quantize.dst", op.dst); !s.ok()) {
      return s;
    }
    if (!v1::ScaleGranularity_IsValid(quantize.granularity())) {
      return Error("quantize",
                   absl::StrCat("granularity ", static_cast<int>(quantize.granularity()),
                                " is not known here"));
    }
    op.granularity = static_cast<kernels::ScaleGranularity>(quantize.granularity());
    if (absl::Status s =
            FillOptional(quantize.rows(), quantize.has_rows(), "quantize.rows", op.rows);
        !s.ok()) {
      return s;
    }
    return FillTensor(quantize.scales(), quantize.has_scales(), "quantize.scales", op.scales);
  }

  absl::Status Add(const v1::Gated& gated) {
    auto& op = Emplace<kernels::GatedOp>();
    if (auto s = FillTensor(gated.src(), gated.has_src(), "gated.src", op.src); !s.ok()) return s;
    if (auto s = FillTensor(gated.dst(), gated.has_dst(), "gated.dst", op.dst); !s.ok()) return s;
    if (gated.has_scales()) {
      if (auto s = FillTensor(gated.scales(), true, "gated.scales", op.scales.emplace()); !s.ok()) {
        return s;
      }
    }
    if (gated.has_alpha()) op.alpha = gated.alpha();
    op.period = gated.period();
    op.limit = gated.limit();
    op.up_offset = gated.up_offset();
    return FillActivation(gated.activation(), "gated", op.activation);
  }

  absl::Status FillOptional(const v1::Tensor& tensor, bool given, std::string_view field,
                            std::optional<TensorRef>& out) {
    return given ? FillTensor(tensor, true, field, out.emplace()) : absl::OkStatus();
  }

  absl::Status FillGate(const v1::Gate& gate, std::string_view field, kernels::Gate& out) const {
    out.period = gate.period();
    if (gate.has_alpha()) out.alpha = gate.alpha();
    out.limit = gate.limit();
    out.up_offset = gate.up_offset();
    return FillActivation(gate.activation(), field, out.activation);
  }

  // The groups' matrices: b, or a table of them.
  absl::Status FillMatrices(const v1::GroupedMatmul& grouped, kernels::GroupedMatmulOp& op) {
    if (grouped.weights_size() == 0) {
      return FillOperand(grouped.b(), grouped.has_b(), "grouped_matmul.b", op.b);
    }
    if (grouped.has_b()) {
      return Error("grouped_matmul", "b and weights are both given; leave one out");
    }
    if (grouped.weights_size() > kernels::kMaxGroups) {
      return Error("grouped_matmul.weights",
                   absl::StrCat(grouped.weights_size(), " matrices, limit ", kernels::kMaxGroups,
                                "; multiply them in several ops"));
    }
    op.table.resize(grouped.weights_size());
    for (int g = 0; g < grouped.weights_size(); ++g) {
      absl::Status s = FillOperand(grouped.weights(g), true,
                                   absl::StrCat("grouped_matmul.weights[", g, "]"), op.table[g]);
      if (!s.ok()) return s;
    }
    op.b = kernels::StackOf(op.table[0], grouped.weights_size());
    return absl::OkStatus();
  }

  absl::Status Add(const v1::GroupedMatmul& grouped) {
    auto& op = Emplace<kernels::GroupedMatmulOp>();
    absl::Status s = FillOperand(grouped.a(), grouped.has_a(), "grouped_matmul.a", op.a);
    if (s.ok()) s = FillMatrices(grouped, op);
    if (s.ok()) {
      s = FillTensor(grouped.groups(), grouped.has_groups(), "grouped_matmul.groups", op.groups);
    }
    if (s.ok()) s = FillTensor(grouped.d(), grouped.has_d(), "grouped_matmul.d", op.d);
    if (s.ok()) {
      s = FillOptional(grouped.d_scales(), grouped.has_d_scales(), "grouped_matmul.d_scales",
                       op.d_scales);
    }
    if (s.ok()) {
      s = FillOptional(grouped.bias(), grouped.has_bias(), "grouped_matmul.bias", op.bias);
    }
    if (s.ok() && grouped.has_gate()) {
      s = FillGate(grouped.gate(), "grouped_matmul.gate", op.gate.emplace());
    }
    if (s.ok()) s = FillActivation(grouped.activation(), "grouped_matmul", op.activation);
    if (!s.ok()) return s;
    if (!v1::GroupLayout_IsValid(grouped.layout())) {
      return Error("grouped_matmul", absl::StrCat("layout ", static_cast<int>(grouped.layout()),
                                                  " is not known here"));
    }
    if (grouped.kernel().size() > 128) {
      return Error("grouped_matmul", "kernel is longer than any name");
    }
    op.layout = static_cast<kernels::GroupLayout>(grouped.layout());
    if (grouped.alignment() != 0) op.alignment = grouped.alignment();
    if (grouped.has_alpha()) op.alpha = grouped.alpha();
    op.expected_rows = grouped.expected_rows();
    op.kernel = grouped.kernel();
    return absl::OkStatus();
  }

  absl::Status Add(const v1::KGroupedMatmul& grouped) {
    auto& op = Emplace<kernels::KGroupedMatmulOp>();
    absl::Status s = FillOperand(grouped.a(), grouped.has_a(), "k_grouped_matmul.a", op.a);
    if (s.ok()) s = FillOperand(grouped.b(), grouped.has_b(), "k_grouped_matmul.b", op.b);
    if (s.ok()) {
      s = FillTensor(grouped.groups(), grouped.has_groups(), "k_grouped_matmul.groups", op.groups);
    }
    if (s.ok()) s = FillTensor(grouped.d(), grouped.has_d(), "k_grouped_matmul.d", op.d);
    if (s.ok()) s = FillOptional(grouped.c(), grouped.has_c(), "k_grouped_matmul.c", op.c);
    if (!s.ok()) return s;
    if (!v1::GroupLayout_IsValid(grouped.layout())) {
      return Error("k_grouped_matmul", absl::StrCat("layout ", static_cast<int>(grouped.layout()),
                                                    " is not known here"));
    }
    if (grouped.kernel().size() > 128) {
      return Error("k_grouped_matmul", "kernel is longer than any name");
    }
    op.layout = static_cast<kernels::GroupLayout>(grouped.layout());
    if (grouped.alignment() != 0) op.alignment = grouped.alignment();
    if (grouped.has_alpha()) op.alpha = grouped.alpha();
    op.beta = grouped.beta();
    op.kernel = grouped.kernel();
    return absl::OkStatus();
  }

  absl::Status Add(const v1::Route& route) {
    auto& op = Emplace<kernels::RouteOp>();
    absl::Status s = FillTensor(route.ids(), route.has_ids(), "route.ids", op.ids);
    if (s.ok()) s = FillTensor(route.offsets(), route.has_offsets(), "route.offsets", op.offsets);
    if (s.ok()) s = FillTensor(route.rows(), route.has_rows(), "route.rows", op.rows);
    if (!s.ok()) return s;
    return FillTensor(route.positions(), route.has_positions(), "route.positions", op.positions);
  }

  absl::Status Add(const v1::Combine& combine) {
    auto& op = Emplace<kernels::CombineOp>();
    absl::Status s = FillTensor(combine.src(), combine.has_src(), "combine.src", op.src);
    if (s.ok()) {
      s = FillTensor(combine.positions(), combine.has_positions(), "combine.positions",
                     op.positions);
    }
    if (s.ok()) {
      s = FillTensor(combine.weights(), combine.has_weights(), "combine.weights", op.weights);
    }
    if (!s.ok()) return s;
    return FillTensor(combine.dst(), combine.has_dst(), "combine.dst", op.dst);
  }

  template <typename T, typename Proto>
  absl::Status AddPair(std::string_view kind, const Proto& proto) {
    auto& op = Emplace<T>();
    if (auto s = FillTensor(proto.src(), proto.has_src(), absl::StrCat(Text(kind), ".src"), op.src);
        !s.ok()) {
      return s;
    }
    return FillTensor(proto.dst(), proto.has_dst(), absl::StrCat(Text(kind), ".dst"), op.dst);
  }

  absl::Status Add(const v1::Fill& fill) {
    auto& op = Emplace<kernels::FillOp>();
    op.value = fill.value();
    return FillTensor(fill.dst(), fill.has_dst(), "fill.dst", op.dst);
  }

  // What a Write or Read moves to or from memory that it names, instead of with the message.
  absl::Status FillShared(const v1::SharedBytes& shared, std::string_view field, bool written,
                          const TensorRef& moved, TensorRef& out) {
    const auto slot = SlotOf(shared.buffer_id(), field);
    if (!slot.ok()) return slot.status();
    absl::Status fits = CheckShared(slots_.slot(*slot).ref, shared.offset_bytes(),
                                    kernels::SizeBytes(moved.dtype), written);
    if (!fits.ok()) return Annotate(field, fits);
    out = {.slot = *slot,
           .offset_bytes = shared.offset_bytes(),
           .dtype = moved.dtype,
           .shape = moved.shape,
           .strides = kernels::RowMajorStrides(moved.shape)};
    out_.shared.emplace_back(out_.ops.size() - 1, written ? "read" : "write");
    return absl::OkStatus();
  }

  absl::Status AddShared(const v1::Write& write) {
    if (!write.data().empty()) return Error("write", "data and from are both given; leave one out");
    auto& op = Emplace<kernels::CopyOp>();
    if (auto s = FillTensor(write.dst(), write.has_dst(), "write.dst", op.dst); !s.ok()) return s;
    return FillShared(write.from(), "write.from", /*written=*/false, op.dst, op.src);
  }

  absl::Status AddShared(const v1::Read& read) {
    auto& op = Emplace<kernels::CopyOp>();
    if (auto s = FillTensor(read.src(), read.has_src(), "read.src", op.src); !s.ok()) return s;
    return FillShared(read.to(), "read.to", /*written=*/true, op.src, op.dst);
  }

  absl::Status Add(const v1::Write& write) {
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
      return Error("write", "data is missing; give the tensor's bytes");
    }
    return FillTensor(write.dst(), write.has_dst(), "write.dst", op.dst);
  }

  absl::Status Add(const v1::Read& read) {
    if (read.has_to()) return AddShared(read);
    auto& op = Emplace<kernels::ReadOp>();
    op.output = out_.outputs++;
    return FillTensor(read.src(), read.has_src(), "read.src", op.src);
  }

  SlotTable& slots_;
  const int index_;
  const Inputs* const data_;
  ConvertedOps& out_;
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
    if (absl::Status added = OpConverter(slots, i, data, converted).Add(ops[i]); !added.ok()) {
      return added;
    }
  }
  if (!converted.shared.empty()) {
    auto names = NamesOf(converted.ops);
    for (const auto& [op, name] : converted.shared) (*names)[op] = name;
    converted.names = std::move(names);
  }
  return converted;
}

}  // namespace gemmd::server
