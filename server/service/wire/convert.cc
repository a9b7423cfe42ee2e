#include "server/service/wire/convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/engine/text.h"
#include "server/service/wire/report.h"
#include "status/propagate.h"

namespace gemmd::server {

static_assert(v1::DTYPE_F32 == static_cast<int>(kernels::DType::kF32) + 1);
static_assert(v1::DTYPE_BF16 == static_cast<int>(kernels::DType::kBF16) + 1);
static_assert(v1::DTYPE_F16 == static_cast<int>(kernels::DType::kF16) + 1);
static_assert(v1::DTYPE_E4M3 == static_cast<int>(kernels::DType::kE4M3) + 1);
static_assert(v1::DTYPE_I8 == static_cast<int>(kernels::DType::kI8) + 1);
static_assert(v1::DTYPE_I32 == static_cast<int>(kernels::DType::kI32) + 1);
static_assert(v1::DTYPE_E5M2 == static_cast<int>(kernels::DType::kE5M2) + 1);
static_assert(v1::DType_ARRAYSIZE == kernels::kAllDTypes + 1);
static_assert(v1::GROUP_LAYOUT_ENDS == static_cast<int>(kernels::GroupLayout::kEnds));
static_assert(v1::ROUTER_SCORES_SIGMOID == static_cast<int>(kernels::RouterScores::kSigmoid));
static_assert(v1::GROUP_SCORE_TOP2_SUM == static_cast<int>(kernels::GroupScore::kTop2Sum));
static_assert(v1::GroupLayout_ARRAYSIZE == kernels::kGroupLayouts);
static_assert(v1::SCALE_GRANULARITY_BLOCK_128X128 ==
              static_cast<int>(kernels::ScaleGranularity::kBlock128x128));
static_assert(v1::MEMORY_KIND_HOST_SHARED == static_cast<int>(kernels::MemoryKind::kHostShared));
static_assert(v1::MEMORY_KIND_DEVICE_SHARED ==
              static_cast<int>(kernels::MemoryKind::kDeviceShared));
static_assert(v1::MEMORY_KIND_DEVICE_IMPORTED ==
              static_cast<int>(kernels::MemoryKind::kDeviceImported));
static_assert(v1::ACTIVATION_RELU == static_cast<int>(kernels::Activation::kRelu));
static_assert(v1::ACTIVATION_GELU_ERF == static_cast<int>(kernels::Activation::kGeluErf));
static_assert(v1::ACTIVATION_RELU_SQUARED == static_cast<int>(kernels::Activation::kReluSquared));
static_assert(v1::Activation_ARRAYSIZE == kernels::kActivations);

absl::StatusOr<Handle> ConvertHandle(std::string_view bytes, std::string_view field) {
  if (const auto handle = HandleFromBytes(bytes)) return *handle;
  return absl::InvalidArgumentError(absl::StrCat(Text(field), " has ", bytes.size(),
                                                 " bytes, not 16; use the one the server gave"));
}

absl::StatusOr<Priority> Convert(v1::Priority priority) {
  switch (priority) {
    case v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case v1::PRIORITY_HIGH:
      return Priority::kHigh;
    case v1::PRIORITY_LOW:
      return Priority::kLow;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "priority ", static_cast<int>(priority), " is not known here; use NORMAL, HIGH or LOW"));
  }
}

absl::StatusOr<kernels::DType> Convert(v1::DType dtype, std::string_view field) {
  if (v1::DType_IsValid(dtype) && dtype != v1::DTYPE_UNSPECIFIED) {
    return static_cast<kernels::DType>(dtype - 1);
  }
  return absl::InvalidArgumentError(absl::StrCat(Text(field), ": dtype ", static_cast<int>(dtype),
                                                 " is not known here; use F32, BF16, F16, E4M3, "
                                                 "E5M2, I8 or I32"));
}

namespace {

// An enum's number, which protobuf lets be any.
template <typename Enum>
absl::Status CheckEnum(absl::string_view field, Enum number) {
  const auto* const type = google::protobuf::GetEnumDescriptor<Enum>();
  if (type->FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " ", static_cast<int>(number), " is not known here"));
}

absl::Status CheckExtent(std::string_view name, int64_t value) {
  if (value > 0 && value <= (int64_t{1} << 40)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("problem.", Text(name), "=", value, " is outside 1 to 2^40"));
}

absl::StatusOr<kernels::OperandTraits> Traits(kernels::DType dtype,
                                              v1::ScaleGranularity granularity) {
  if (!v1::ScaleGranularity_IsValid(granularity)) {
    return absl::InvalidArgumentError(
        absl::StrCat("problem: granularity ", static_cast<int>(granularity), " is not known here"));
  }
  kernels::OperandTraits traits;
  traits.dtype = dtype;
  traits.granularity = static_cast<kernels::ScaleGranularity>(granularity);
  return traits;
}

// The largest power of two, at most 256, that every line's start is a multiple of: what a dense
// buffer gives. A single line starts where the buffer does.
int Alignment(const kernels::OperandTraits& traits, int64_t lines, int64_t batch) {
  const int64_t line = traits.leading_stride * kernels::SizeBytes(traits.dtype);
  // Lines of a batch lie one behind the other: a matrix of one line has its neighbour's beside it.
  const int64_t bits = 256 | (lines > 1 || batch > 1 ? line : 0);
  return static_cast<int>(bits & -bits);
}

absl::Status CheckGate(const v1::MatmulProblem& proto) {
  if (!proto.has_gate()) return absl::OkStatus();
  GEMMD_RETURN_IF_ERROR(CheckEnum("problem.gate.activation", proto.gate().activation()));
  const bool alone = proto.gate().alone();
  if (proto.n() % 2 != 0 && !alone) {
    return absl::InvalidArgumentError(
        absl::StrCat("problem.n=", proto.n(), " is odd, but a gate halves it"));
  }
  const int64_t period = proto.gate().period();
  if (alone && period != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "problem.gate.period=", period, " is given of gates alone, which have no ups; leave it 0"));
  }
  if (period < 0 || (period > 0 && proto.n() / 2 % period != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "problem.gate.period=", period, " does not divide n/2=", proto.n() / 2, "; use 0 for it"));
  }
  if (proto.has_c() || proto.activation() != v1::ACTIVATION_NONE) {
    return absl::InvalidArgumentError(
        "problem has a gate and a C or an activation; a matmul has the one or the other");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<kernels::MatmulProblem> Convert(const v1::MatmulProblem& proto) {
  kernels::MatmulProblem problem;
  problem.m = proto.m();
  problem.n = proto.n();
  problem.k = proto.k();
  problem.batch = proto.batch() == 0 ? 1 : proto.batch();
  for (const auto& [name, value] : {std::pair("m", problem.m), std::pair("n", problem.n),
                                    std::pair("k", problem.k), std::pair("batch", problem.batch)}) {
    GEMMD_RETURN_IF_ERROR(CheckExtent(name, value));
  }
  GEMMD_ASSIGN_OR_RETURN(auto operand, Convert(proto.operand_dtype(), "problem.operand_dtype"));
  GEMMD_ASSIGN_OR_RETURN(auto output, Convert(proto.output_dtype(), "problem.output_dtype"));
  const bool gated_e4m3 = proto.has_gate() && output == kernels::DType::kE4M3;
  if ((kernels::IsFp8(output) || output == kernels::DType::kI8) && !gated_e4m3) {
    return absl::InvalidArgumentError(
        absl::StrCat("problem.output_dtype is ", Text(kernels::Name(output)),
                     "; a matmul gives F32, BF16 or F16, and E4M3 with a gate"));
  }
  GEMMD_RETURN_IF_ERROR(CheckGate(proto));
  kernels::DType b_dtype = operand;
  if (proto.b_dtype() != v1::DTYPE_UNSPECIFIED) {
    GEMMD_ASSIGN_OR_RETURN(b_dtype, Convert(proto.b_dtype(), "problem.b_dtype"));
  }
  if (!kernels::Multiply(operand, b_dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("problem.operand_dtype is ", Text(kernels::Name(operand)), " but b_dtype is ",
                     Text(kernels::Name(b_dtype)), "; only e4m3 and e5m2 multiply each other"));
  }
  GEMMD_ASSIGN_OR_RETURN(auto a, Traits(operand, proto.a_granularity()));
  GEMMD_ASSIGN_OR_RETURN(auto b, Traits(b_dtype, proto.b_granularity()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("problem.activation", proto.activation()));
  problem.a = a;
  problem.b = b;
  problem.a.leading_stride = problem.k;
  // A matrix of one row or column lies both ways.
  const bool b_is_kn = proto.b_is_kn() && problem.n > 1 && problem.k > 1;
  problem.b.leading_stride = b_is_kn ? problem.n : problem.k;
  problem.b.layout = b_is_kn ? kernels::Layout::kRowsContiguous : kernels::Layout::kKContiguous;
  if (proto.has_gate()) {
    kernels::SetGate({.period = proto.gate().period(), .alone = proto.gate().alone()}, problem);
  }
  problem.d.dtype = output;
  problem.d.leading_stride = problem.d_cols();
  if (gated_e4m3) problem.d.granularity = kernels::ScaleGranularity::kBlock1x128;
  const int64_t lines_of_b = b_is_kn ? problem.k : problem.n;
  for (const auto& [traits, lines] :
       {std::pair(&problem.a, problem.m), {&problem.b, lines_of_b}, {&problem.d, problem.m}}) {
    traits->alignment_bytes = Alignment(*traits, lines, problem.batch);
  }
  problem.has_c = proto.has_c();
  if (problem.has_c) problem.c = problem.d;
  problem.has_bias = proto.has_bias();
  problem.activation = static_cast<kernels::Activation>(proto.activation());
  return problem;
}

absl::StatusOr<kernels::GroupedProblem> Convert(const v1::GroupedMatmulProblem& proto) {
  GEMMD_ASSIGN_OR_RETURN(auto operands, Convert(proto.operand_dtype(), "grouped.operand_dtype"));
  GEMMD_ASSIGN_OR_RETURN(auto output, Convert(proto.output_dtype(), "grouped.output_dtype"));
  GEMMD_RETURN_IF_ERROR(CheckEnum("grouped.a_granularity", proto.a_granularity()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("grouped.b_granularity", proto.b_granularity()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("grouped.layout", proto.layout()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("grouped.activation", proto.activation()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("grouped.gate.activation", proto.gate().activation()));
  kernels::GroupedProblem problem;
  problem.groups = proto.groups();
  problem.m = proto.m();
  problem.n = proto.n();
  problem.k = proto.k();
  problem.operands = operands;
  problem.out = output;
  problem.a_granularity = static_cast<kernels::ScaleGranularity>(proto.a_granularity());
  problem.b_granularity = static_cast<kernels::ScaleGranularity>(proto.b_granularity());
  problem.layout = static_cast<kernels::GroupLayout>(proto.layout());
  problem.apart = proto.weights_apart();
  problem.has_bias = proto.has_bias();
  problem.activation = static_cast<kernels::Activation>(proto.activation());
  problem.expected_rows = proto.expected_rows();
  if (!proto.has_gate()) return problem;
  kernels::Gate& gate = problem.gate.emplace();
  gate.activation = static_cast<kernels::Activation>(proto.gate().activation());
  gate.period = proto.gate().period();
  if (proto.gate().has_alpha()) gate.alpha = proto.gate().alpha();
  gate.limit = proto.gate().limit();
  gate.up_offset = proto.gate().up_offset();
  gate.alone = proto.gate().alone();
  return problem;
}

absl::StatusOr<kernels::KGroupedProblem> Convert(const v1::KGroupedMatmulProblem& proto) {
  GEMMD_ASSIGN_OR_RETURN(const auto a, Convert(proto.a_dtype(), "k_grouped.a_dtype"));
  auto b = a;
  if (proto.b_dtype() != v1::DTYPE_UNSPECIFIED) {
    GEMMD_ASSIGN_OR_RETURN(b, Convert(proto.b_dtype(), "k_grouped.b_dtype"));
  }
  GEMMD_ASSIGN_OR_RETURN(auto output, Convert(proto.output_dtype(), "k_grouped.output_dtype"));
  GEMMD_RETURN_IF_ERROR(CheckEnum("k_grouped.a_granularity", proto.a_granularity()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("k_grouped.b_granularity", proto.b_granularity()));
  GEMMD_RETURN_IF_ERROR(CheckEnum("k_grouped.layout", proto.layout()));
  kernels::KGroupedProblem problem;
  problem.groups = proto.groups();
  problem.m = proto.m();
  problem.n = proto.n();
  problem.k = proto.k();
  problem.layout = static_cast<kernels::GroupLayout>(proto.layout());
  problem.a = a;
  problem.b = b;
  problem.out = output;
  problem.a_granularity = static_cast<kernels::ScaleGranularity>(proto.a_granularity());
  problem.b_granularity = static_cast<kernels::ScaleGranularity>(proto.b_granularity());
  problem.has_c = proto.has_c();
  return problem;
}

absl::StatusOr<BufferSpec> ConvertSpec(v1::DType dtype,
                                       const google::protobuf::RepeatedField<int64_t>& shape,
                                       int64_t size_bytes) {
  BufferSpec spec{.size_bytes = size_bytes};
  if (dtype != v1::DTYPE_UNSPECIFIED) {
    GEMMD_ASSIGN_OR_RETURN(spec.dtype, Convert(dtype, "dtype"));
  }
  if (shape.size() > 0 && !spec.dtype) {
    return absl::InvalidArgumentError("shape is given without a dtype; give both or neither");
  }
  if (shape.size() > kernels::kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("shape has rank ", shape.size(), ", limit ",
                                                   kernels::kMaxRank,
                                                   "; fold dimensions together"));
  }
  int64_t bytes = spec.dtype ? kernels::SizeBytes(*spec.dtype) : 0;
  spec.shape.rank = shape.size();
  for (int i = 0; i < shape.size(); ++i) {
    spec.shape[i] = shape[i];
    if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i], &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape[", i, "]=", shape[i],
                       shape[i] < 0 ? " is negative" : " makes the size overflow 2^63 bytes"));
    }
  }
  if (shape.size() > 0) {
    if (size_bytes == 0) spec.size_bytes = bytes;
    if (spec.size_bytes < bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("size_bytes=", size_bytes, " is less than the ", bytes, " bytes that ",
                       kernels::ToString(spec.shape), " of ", Text(kernels::Name(*spec.dtype)),
                       " take; leave it 0 or raise it"));
    }
  }
  if (spec.size_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "size_bytes=", spec.size_bytes, " is not above 0; give a size, or a dtype and shape"));
  }
  return spec;
}

kernels::MemoryKind Convert(v1::MemoryKind kind) { return static_cast<kernels::MemoryKind>(kind); }

v1::MemoryKind ToProto(kernels::MemoryKind kind) { return static_cast<v1::MemoryKind>(kind); }

v1::DType ToProto(kernels::DType dtype) {
  return static_cast<v1::DType>(static_cast<int>(dtype) + 1);
}

v1::ChoiceReason ToProto(kernels::ChoiceReason reason) {
  switch (reason) {
    case kernels::ChoiceReason::kTable:
      return v1::CHOICE_REASON_TABLE;
    case kernels::ChoiceReason::kTuned:
      return v1::CHOICE_REASON_TUNED;
    case kernels::ChoiceReason::kModel:
      return v1::CHOICE_REASON_MODEL;
    case kernels::ChoiceReason::kForced:
      return v1::CHOICE_REASON_FORCED;
    case kernels::ChoiceReason::kFallback:
      return v1::CHOICE_REASON_FALLBACK;
    case kernels::ChoiceReason::kOnly:
      return v1::CHOICE_REASON_ONLY;
  }
  return v1::CHOICE_REASON_UNSPECIFIED;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp timestamp;
  const int64_t seconds = absl::ToUnixSeconds(time);
  timestamp.set_seconds(seconds);
  timestamp.set_nanos(
      static_cast<int>((time - absl::FromUnixSeconds(seconds)) / absl::Nanoseconds(1)));
  return timestamp;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int>(duration / absl::Nanoseconds(1)));
  return proto;
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

void FillCompletion(const Outcome& outcome, v1::ReportLevel level, v1::Completion& completion) {
  if (level != v1::REPORT_LEVEL_NONE) FillReport(outcome, level, completion.mutable_report());
  for (const auto& output : outcome.outputs) {
    completion.add_outputs(output->data(), output->size());
  }
}

}  // namespace gemmd::server
