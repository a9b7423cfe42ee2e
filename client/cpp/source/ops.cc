#include "client/cpp/ops.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/op_wire.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client {

bool OpList::Check(absl::string_view op,
                   std::initializer_list<std::pair<const char*, const Tensor*>> tensors) {
  if (!status_.ok()) return false;
  for (const auto& [name, tensor] : tensors) {
    if (tensor->status().ok()) continue;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("op ", size_, " (", op, "): ", name, ": ", tensor->status().message()));
    return false;
  }
  ++size_;
  return true;
}

OpList& OpList::Add(const Matmul& op) {
  if (!Check("matmul", {{"a", &op.a.values},
                        {"a.scales", &op.a.scales},
                        {"b", &op.b.values},
                        {"b.scales", &op.b.scales},
                        {"d", &op.d},
                        {"c", &op.c},
                        {"bias", &op.bias},
                        {"d_scales", &op.d_scales}})) {
    return *this;
  }
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kMatmulFieldNumber);
  internal::AppendOperand(out, v1::Matmul::kAFieldNumber, op.a);
  internal::AppendOperand(out, v1::Matmul::kBFieldNumber, op.b);
  internal::AppendTensor(out, v1::Matmul::kDFieldNumber, op.d);
  internal::AppendTensor(out, v1::Matmul::kCFieldNumber, op.c);
  internal::AppendTensor(out, v1::Matmul::kBiasFieldNumber, op.bias);
  if (op.alpha != 1) wire::AppendFloat(out, v1::Matmul::kAlphaFieldNumber, op.alpha);
  if (op.beta != 0) wire::AppendFloat(out, v1::Matmul::kBetaFieldNumber, op.beta);
  wire::AppendInt(out, v1::Matmul::kActivationFieldNumber, static_cast<int>(op.activation));
  if (!op.kernel.empty()) wire::AppendBytes(out, v1::Matmul::kKernelFieldNumber, op.kernel);
  if (op.gate) internal::AppendGate(out, v1::Matmul::kGateFieldNumber, *op.gate);
  internal::AppendTensor(out, v1::Matmul::kDScalesFieldNumber, op.d_scales);
  return *this;
}

OpList& OpList::Add(const Quantize& op) {
  if (!Check("quantize",
             {{"src", &op.src}, {"dst", &op.dst}, {"scales", &op.scales}, {"rows", &op.rows}})) {
    return *this;
  }
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kQuantizeFieldNumber);
  internal::AppendTensor(out, v1::Quantize::kSrcFieldNumber, op.src);
  internal::AppendTensor(out, v1::Quantize::kDstFieldNumber, op.dst);
  internal::AppendTensor(out, v1::Quantize::kScalesFieldNumber, op.scales);
  wire::AppendInt(out, v1::Quantize::kGranularityFieldNumber, static_cast<int>(op.granularity));
  internal::AppendTensor(out, v1::Quantize::kRowsFieldNumber, op.rows);
  return *this;
}

OpList& OpList::Add(const Gated& op) {
  if (!Check("gated", {{"src", &op.src}, {"dst", &op.dst}, {"scales", &op.scales}})) {
    return *this;
  }
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kGatedFieldNumber);
  internal::AppendTensor(out, v1::Gated::kSrcFieldNumber, op.src);
  internal::AppendTensor(out, v1::Gated::kDstFieldNumber, op.dst);
  internal::AppendTensor(out, v1::Gated::kScalesFieldNumber, op.scales);
  wire::AppendInt(out, v1::Gated::kActivationFieldNumber, static_cast<int>(op.activation));
  wire::AppendInt(out, v1::Gated::kPeriodFieldNumber, op.period);
  if (op.alpha != 1) wire::AppendFloat(out, v1::Gated::kAlphaFieldNumber, op.alpha);
  if (op.limit != 0) wire::AppendFloat(out, v1::Gated::kLimitFieldNumber, op.limit);
  if (op.up_offset != 0) wire::AppendFloat(out, v1::Gated::kUpOffsetFieldNumber, op.up_offset);
  return *this;
}

OpList& OpList::Add(const Convert& op) {
  if (!Check("convert", {{"src", &op.src}, {"dst", &op.dst}})) return *this;
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kConvertFieldNumber);
  internal::AppendTensor(out, v1::Convert::kSrcFieldNumber, op.src);
  internal::AppendTensor(out, v1::Convert::kDstFieldNumber, op.dst);
  return *this;
}

OpList& OpList::Add(const Copy& op) {
  if (!Check("copy", {{"src", &op.src}, {"dst", &op.dst}})) return *this;
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kCopyFieldNumber);
  internal::AppendTensor(out, v1::Copy::kSrcFieldNumber, op.src);
  internal::AppendTensor(out, v1::Copy::kDstFieldNumber, op.dst);
  return *this;
}

OpList& OpList::Add(const Fill& op) {
  if (!Check("fill", {{"dst", &op.dst}})) return *this;
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kFillFieldNumber);
  internal::AppendTensor(out, v1::Fill::kDstFieldNumber, op.dst);
  if (op.value != 0) wire::AppendDouble(out, v1::Fill::kValueFieldNumber, op.value);
  return *this;
}

OpList& OpList::Add(const Write& op) {
  if (!Check("write", {{"dst", &op.dst}})) return *this;
  std::string& out = wire_.ForWriting();
  // Lengths first: Nested would move the data, which may be megabytes, to make room for its length.
  std::string dst;
  internal::AppendTensor(dst, v1::Write::kDstFieldNumber, op.dst);
  wire::AppendLength(dst, v1::Write::kDataFieldNumber, op.data.size());
  const uint64_t write_size = dst.size() + op.data.size();
  std::string head;
  const size_t begin = out.size();
  wire::AppendLength(head, v1::Op::kWriteFieldNumber, write_size);
  wire::AppendLength(out, internal::kOps, head.size() + write_size);
  out += head;
  out += dst;
  out.append(op.data.data(), op.data.size());
  const auto data_bytes = static_cast<int64_t>(op.data.size());
  inlined_.push_back({/*is_write=*/true, op.dst, begin, out.size(), data_bytes});
  inline_bytes_ += data_bytes;
  return *this;
}

OpList& OpList::Add(const Read& op) {
  if (!Check("read", {{"src", &op.src}})) return *this;
  std::string& out = wire_.ForWriting();
  const size_t begin = out.size();
  {
    wire::Nested list(out, internal::kOps);
    wire::Nested nested(out, v1::Op::kReadFieldNumber);
    internal::AppendTensor(out, v1::Read::kSrcFieldNumber, op.src);
  }
  inlined_.push_back({/*is_write=*/false, op.src, begin, out.size(), /*data_bytes=*/0});
  ++reads_;
  return *this;
}

void OpList::AppendPlace(int field, const Handle& buffer, int64_t offset_bytes, std::string& out) {
  wire::Nested place(out, field);
  wire::AppendBytes(out, v1::SharedBytes::kBufferIdFieldNumber, buffer.bytes());
  wire::AppendInt(out, v1::SharedBytes::kOffsetBytesFieldNumber, offset_bytes);
}

void OpList::AppendShared(const Inlined& op, const Handle& buffer, int64_t offset_bytes,
                          std::string& out) {
  wire::Nested list(out, internal::kOps);
  if (op.is_write) {
    wire::Nested write(out, v1::Op::kWriteFieldNumber);
    internal::AppendTensor(out, v1::Write::kDstFieldNumber, op.tensor);
    AppendPlace(v1::Write::kFromFieldNumber, buffer, offset_bytes, out);
  } else {
    wire::Nested read(out, v1::Op::kReadFieldNumber);
    internal::AppendTensor(out, v1::Read::kSrcFieldNumber, op.tensor);
    AppendPlace(v1::Read::kToFieldNumber, buffer, offset_bytes, out);
  }
}

void OpList::Clear() {
  wire_.Clear();
  inlined_.clear();
  size_ = 0;
  reads_ = 0;
  inline_bytes_ = 0;
  status_ = absl::OkStatus();
}

}  // namespace gemmd::client
