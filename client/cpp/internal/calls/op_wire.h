// How an op goes on the wire. For ops.cc and grouped_ops.cc.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/ops.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client::internal {

constexpr int kOps = v1::ExecuteRequest::kOpsFieldNumber;
static_assert(kOps == v1::Batch::kOpsFieldNumber && kOps == v1::CreatePlanRequest::kOpsFieldNumber,
              "one encoding serves all three requests");

inline void AppendDims(std::string& out, int field, absl::Span<const int64_t> dims) {
  wire::Nested packed(out, field);
  for (int64_t dim : dims) wire::AppendVarint(out, static_cast<uint64_t>(dim));
}

inline void AppendTensor(std::string& out, int field, const Tensor& tensor) {
  if (tensor.empty()) return;
  wire::Nested nested(out, field);
  wire::AppendBytes(out, v1::Tensor::kBufferIdFieldNumber, tensor.buffer().bytes());
  wire::AppendInt(out, v1::Tensor::kOffsetBytesFieldNumber, tensor.offset_bytes());
  wire::AppendInt(out, v1::Tensor::kDtypeFieldNumber, static_cast<int>(tensor.dtype()));
  AppendDims(out, v1::Tensor::kShapeFieldNumber, tensor.shape());
  if (!tensor.dense()) AppendDims(out, v1::Tensor::kStridesFieldNumber, tensor.strides());
}

// Appends one op, field by field, and keeps the first tensor among them that is invalid.
class OpWriter {
 public:
  // kind: the number of a field of v1::Op.
  OpWriter(std::string& out, int kind) : out_(out), begin_(out.size()) {
    list_.emplace(out, kOps);
    op_.emplace(out, kind);
  }

  // Its tensor, under its name, that tells whether the op is valid.
  std::pair<const char*, const Tensor*> checked() const { return {name_.c_str(), checked_}; }
  // After the last field. What is not kept is taken off again.
  void End(bool keep) {
    op_.reset();
    list_.reset();
    if (!keep) out_.resize(begin_);
  }

  void Add(int field, const char* name, const Tensor& tensor) {
    Check(name, "", tensor);
    AppendTensor(out_, field, tensor);
  }
  void Add(int field, const char* name, const Operand& operand) {
    Check(name, "", operand.values);
    Check(name, ".scales", operand.scales);
    wire::Nested nested(out_, field);
    AppendTensor(out_, v1::Operand::kValuesFieldNumber, operand.values);
    wire::AppendInt(out_, v1::Operand::kGranularityFieldNumber,
                    static_cast<int>(operand.granularity));
    AppendTensor(out_, v1::Operand::kScalesFieldNumber, operand.scales);
  }
  void Add(int field, const std::optional<Gate>& gate) {
    if (!gate) return;
    using P = v1::Gate;
    wire::Nested nested(out_, field);
    Add(P::kActivationFieldNumber, static_cast<int64_t>(gate->activation));
    Add(P::kPeriodFieldNumber, gate->period);
    Add(P::kAlphaFieldNumber, gate->alpha, 1);
    Add(P::kLimitFieldNumber, gate->limit);
    Add(P::kUpOffsetFieldNumber, gate->up_offset);
    Add(P::kAloneFieldNumber, int64_t{gate->alone});
  }
  void Add(int field, const std::string& text) {
    if (!text.empty()) wire::AppendBytes(out_, field, text);
  }
  // Numbers that are what the field has anyway are left out.
  void Add(int field, int64_t value, int64_t unsaid = 0) {
    wire::AppendInt(out_, field, value == unsaid ? 0 : value);
  }
  void Add(int field, float value, float unsaid = 0) {
    if (value != unsaid) wire::AppendFloat(out_, field, value);
  }
  void Add(int field, double value) {
    if (value != 0) wire::AppendDouble(out_, field, value);
  }

 private:
  void Check(const char* name, const char* part, const Tensor& tensor) {
    if (checked_ != nullptr && (tensor.status().ok() || !checked_->status().ok())) return;
    name_ = absl::StrCat(name, part);
    checked_ = &tensor;
  }

  std::string& out_;
  const size_t begin_;
  std::optional<wire::Nested> list_, op_;
  std::string name_;
  const Tensor* checked_ = nullptr;
};

}  // namespace gemmd::client::internal
