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
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kMatmulFieldNumber);
  using P = v1::Matmul;
  out.Add(P::kAFieldNumber, "a", op.a);
  out.Add(P::kBFieldNumber, "b", op.b);
  out.Add(P::kDFieldNumber, "d", op.d);
  out.Add(P::kCFieldNumber, "c", op.c);
  out.Add(P::kBiasFieldNumber, "bias", op.bias);
  out.Add(P::kAlphaFieldNumber, op.alpha, 1);
  out.Add(P::kBetaFieldNumber, op.beta);
  out.Add(P::kActivationFieldNumber, static_cast<int64_t>(op.activation));
  out.Add(P::kKernelFieldNumber, op.kernel);
  out.Add(P::kGateFieldNumber, op.gate);
  out.Add(P::kDScalesFieldNumber, "d_scales", op.d_scales);
  out.End(Check("matmul", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Quantize& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kQuantizeFieldNumber);
  using P = v1::Quantize;
  out.Add(P::kSrcFieldNumber, "src", op.src);
  out.Add(P::kDstFieldNumber, "dst", op.dst);
  out.Add(P::kScalesFieldNumber, "scales", op.scales);
  out.Add(P::kGranularityFieldNumber, static_cast<int64_t>(op.granularity));
  out.Add(P::kRowsFieldNumber, "rows", op.rows);
  out.End(Check("quantize", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Gated& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kGatedFieldNumber);
  using P = v1::Gated;
  out.Add(P::kSrcFieldNumber, "src", op.src);
  out.Add(P::kDstFieldNumber, "dst", op.dst);
  out.Add(P::kScalesFieldNumber, "scales", op.scales);
  out.Add(P::kActivationFieldNumber, static_cast<int64_t>(op.activation));
  out.Add(P::kPeriodFieldNumber, op.period);
  out.Add(P::kAlphaFieldNumber, op.alpha, 1);
  out.Add(P::kLimitFieldNumber, op.limit);
  out.Add(P::kUpOffsetFieldNumber, op.up_offset);
  out.Add(P::kAloneFieldNumber, int64_t{op.alone});
  out.End(Check("gated", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Normalize& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kNormalizeFieldNumber);
  using P = v1::Normalize;
  out.Add(P::kSrcFieldNumber, "src", op.src);
  out.Add(P::kDstFieldNumber, "dst", op.dst);
  out.Add(P::kScalesFieldNumber, "scales", op.scales);
  out.Add(P::kWeightFieldNumber, "weight", op.weight);
  out.Add(P::kBiasFieldNumber, "bias", op.bias);
  out.Add(P::kEpsilonFieldNumber, op.epsilon, 1e-5f);
  out.Add(P::kCenteredFieldNumber, int64_t{op.centered});
  out.Add(P::kAddendFieldNumber, "addend", op.addend);
  out.Add(P::kSumFieldNumber, "sum", op.sum);
  out.End(Check("normalize", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Convert& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kConvertFieldNumber);
  out.Add(v1::Convert::kSrcFieldNumber, "src", op.src);
  out.Add(v1::Convert::kDstFieldNumber, "dst", op.dst);
  out.End(Check("convert", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Copy& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kCopyFieldNumber);
  out.Add(v1::Copy::kSrcFieldNumber, "src", op.src);
  out.Add(v1::Copy::kDstFieldNumber, "dst", op.dst);
  out.End(Check("copy", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Fill& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kFillFieldNumber);
  out.Add(v1::Fill::kDstFieldNumber, "dst", op.dst);
  out.Add(v1::Fill::kValueFieldNumber, op.value);
  out.End(Check("fill", {out.checked()}));
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
