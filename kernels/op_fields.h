// What each kind of op is called and made of. Whatever walks the fields of any op reads this: its
// tensors, its bytes as a key, the names of ops and of their kernels.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "kernels/op.h"

namespace gemmd::kernels {

enum class Role : uint8_t {
  kReads,
  kIndexes,  // read as row numbers, counts or the like, which may be wrong when the op runs
  kWrites,
  kSays,  // no tensor
};

template <Role role, class T>
struct Field {
  static constexpr Role kRole = role;
  T value;  // a reference, but of what is made for the occasion
};
template <class T>
Field<Role::kReads, const T&> Reads(const T& value) {
  return {value};
}
template <class T>
Field<Role::kIndexes, const T&> Indexes(const T& value) {
  return {value};
}
template <class T>
Field<Role::kWrites, const T&> Writes(const T& value) {
  return {value};
}
template <class T>
Field<Role::kSays, const T&> Says(const T& value) {
  return {value};
}

// kName: the label `op` of metrics and replies. kKernel: what GetServerInfo says of the kernel that
// serves any op of the kind. FieldsOf: what it reads before what it writes. The structured bindings
// name every field: a new one does not compile until it stands here.
template <class Op>
struct OpKind;

template <>
struct OpKind<MatmulOp> {
  static constexpr std::string_view kName = "matmul";
  static constexpr std::string_view kKernel = {};  // the backends have a pool of them
  static auto FieldsOf(const MatmulOp& op) {
    const auto& [a, b, d, c, bias, alpha, beta, activation, kernel, deterministic, gate, d_scales] =
        op;
    return std::tuple(Reads(a), Reads(b), Reads(c), Reads(bias), Writes(d), Writes(d_scales),
                      Says(alpha), Says(beta), Says(activation), Says(kernel), Says(deterministic),
                      Says(gate));
  }
};

template <>
struct OpKind<QuantizeOp> {
  static constexpr std::string_view kName = "quantize";
  static constexpr std::string_view kKernel =
      "f32, bf16 or f16 to e4m3, e5m2 or i8, any strides and granularity";
  static auto FieldsOf(const QuantizeOp& op) {
    const auto& [src, dst, scales, granularity, rows] = op;
    return std::tuple(Reads(src), Indexes(rows), Writes(dst), Writes(scales), Says(granularity));
  }
};

template <>
struct OpKind<GatedOp> {
  static constexpr std::string_view kName = "gated";
  static constexpr std::string_view kKernel =
      "activation(gate), times up, f32, bf16 or f16 to those or e4m3 with scales of 1x128";
  static auto FieldsOf(const GatedOp& op) {
    const auto& [src, dst, scales, activation, period, alpha, limit, up_offset, alone] = op;
    return std::tuple(Reads(src), Writes(dst), Writes(scales), Says(activation), Says(period),
                      Says(alpha), Says(limit), Says(up_offset), Says(alone));
  }
};

template <>
struct OpKind<ConvertOp> {
  static constexpr std::string_view kName = "convert";
  static constexpr std::string_view kKernel = "any type to any other, any strides";
  static auto FieldsOf(const ConvertOp& op) {
    const auto& [src, dst] = op;
    return std::tuple(Reads(src), Writes(dst));
  }
};

template <>
struct OpKind<CopyOp> {
  static constexpr std::string_view kName = "copy";
  static constexpr std::string_view kKernel = "any strides";
  static auto FieldsOf(const CopyOp& op) {
    const auto& [src, dst] = op;
    return std::tuple(Reads(src), Writes(dst));
  }
};

template <>
struct OpKind<FillOp> {
  static constexpr std::string_view kName = "fill";
  static constexpr std::string_view kKernel = "one value, any strides";
  static auto FieldsOf(const FillOp& op) {
    const auto& [dst, value] = op;
    return std::tuple(Writes(dst), Says(value));
  }
};

template <>
struct OpKind<WriteOp> {
  static constexpr std::string_view kName = "write";
  static constexpr std::string_view kKernel = "bytes of the request into a tensor of any strides";
  static auto FieldsOf(const WriteOp& op) {
    const auto& [dst, input] = op;
    return std::tuple(Writes(dst), Says(input));
  }
};

template <>
struct OpKind<ReadOp> {
  static constexpr std::string_view kName = "read";
  static constexpr std::string_view kKernel = "a tensor of any strides into bytes of the reply";
  static auto FieldsOf(const ReadOp& op) {
    const auto& [src, output] = op;
    return std::tuple(Reads(src), Says(output));
  }
};

template <>
struct OpKind<GroupedMatmulOp> {
  static constexpr std::string_view kName = "grouped_matmul";
  static constexpr std::string_view kKernel =
      "any type, strides and scales, one matrix of b for each group of rows";
  static auto FieldsOf(const GroupedMatmulOp& op) {
    const auto& [a, b, table, groups, layout, alignment, d, d_scales, gate, bias, alpha, activation,
                 expected_rows, kernel] = op;
    const absl::Span<const Operand> matrices =
        table.empty() ? absl::MakeConstSpan(&b, 1) : absl::MakeConstSpan(table);
    return std::tuple(Reads(a), Field<Role::kReads, absl::Span<const Operand>>{matrices},
                      Indexes(groups), Reads(bias), Writes(d), Writes(d_scales),
                      Field<Role::kSays, bool>{table.empty()}, Says(layout), Says(alignment),
                      Says(gate), Says(alpha), Says(activation), Says(expected_rows), Says(kernel));
  }
};

template <>
struct OpKind<KGroupedMatmulOp> {
  static constexpr std::string_view kName = "k_grouped_matmul";
  static constexpr std::string_view kKernel =
      "any type, strides and scales, one product for each group of columns";
  static auto FieldsOf(const KGroupedMatmulOp& op) {
    const auto& [a, b, groups, layout, alignment, d, c, alpha, beta, kernel] = op;
    return std::tuple(Reads(a), Reads(b), Indexes(groups), Reads(c), Writes(d), Says(layout),
                      Says(alignment), Says(alpha), Says(beta), Says(kernel));
  }
};

template <>
struct OpKind<ChooseOp> {
  static constexpr std::string_view kName = "choose";
  static constexpr std::string_view kKernel =
      "a router's experts and weights, by softmax or sigmoid of f32, bf16 or f16";
  static auto FieldsOf(const ChooseOp& op) {
    const auto& [logits, bias, experts, weights, scores, renormalize, scale, groups, top_groups,
                 group_score] = op;
    return std::tuple(Reads(logits), Reads(bias), Writes(experts), Writes(weights), Says(scores),
                      Says(renormalize), Says(scale), Says(groups), Says(top_groups),
                      Says(group_score));
  }
};

template <>
struct OpKind<RouteOp> {
  static constexpr std::string_view kName = "route";
  static constexpr std::string_view kKernel = "rows of chosen experts, in the experts' order";
  static auto FieldsOf(const RouteOp& op) {
    const auto& [ids, offsets, rows, positions] = op;
    return std::tuple(Indexes(ids), Writes(offsets), Writes(rows), Writes(positions));
  }
};

template <>
struct OpKind<CombineOp> {
  static constexpr std::string_view kName = "combine";
  static constexpr std::string_view kKernel = "sums of rows by their weights";
  static auto FieldsOf(const CombineOp& op) {
    const auto& [src, positions, weights, dst] = op;
    return std::tuple(Reads(src), Indexes(positions), Reads(weights), Writes(dst));
  }
};

template <>
struct OpKind<NormalizeOp> {
  static constexpr std::string_view kName = "normalize";
  static constexpr std::string_view kKernel =
      "layer and rms norm, f32, bf16 or f16 to those or e4m3 with scales of 1x128";
  static auto FieldsOf(const NormalizeOp& op) {
    const auto& [src, addend, sum, dst, scales, weight, bias, epsilon, centered] = op;
    return std::tuple(Reads(src), Reads(addend), Reads(weight), Reads(bias), Writes(sum),
                      Writes(dst), Writes(scales), Says(epsilon), Says(centered));
  }
};

// fn(field) for each Field of the op.
template <class Op, class Fn>
void ForEachField(const Op& op, Fn fn) {
  std::apply([&](const auto&... field) { (fn(field), ...); }, OpKind<Op>::FieldsOf(op));
}

// Whether it reads row numbers, counts or the like, which may be wrong when it runs (data_fault.h).
bool ReadsNumbers(const Op& op);

// The tensor whose elements the op counts by, and whose dtype its step reports: dst, or what it
// reads first: operand a of a matmul, the source of a Read.
const TensorRef& MainTensor(const Op& op);

}  // namespace gemmd::kernels
