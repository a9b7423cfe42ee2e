#include "server/service/otlp/encode.h"

#include <functional>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/engine/version.h"
#include "server/service/compute/trace_context.h"

namespace gemmd::server {
namespace {

using Attributes = google::protobuf::RepeatedPtrField<otlp::KeyValue>;

void Add(std::string_view key, std::string_view value, Attributes* attributes) {
  if (value.empty()) return;
  otlp::KeyValue* added = attributes->Add();
  added->set_key(key.data(), key.size());
  added->mutable_value()->set_string_value(value.data(), value.size());
}

void Add(std::string_view key, int64_t value, Attributes* attributes) {
  otlp::KeyValue* added = attributes->Add();
  added->set_key(key.data(), key.size());
  added->mutable_value()->set_int_value(value);
}

std::string_view NameOf(SpanPart::Kind kind) {
  switch (kind) {
    case SpanPart::Kind::kQueue:
      return "queue";
    case SpanPart::Kind::kDevice:
      return "device";
    case SpanPart::Kind::kTransfer:
      return "transfer";
  }
  return "";
}

void SetTime(absl::Time begin, absl::Duration duration, otlp::Span* span) {
  span->set_start_time_unix_nano(absl::ToUnixNanos(begin));
  span->set_end_time_unix_nano(absl::ToUnixNanos(begin + duration));
}

std::string NameOf(const CallSpan& call) {
  switch (call.kind) {
    case CallSpan::Kind::kCall:
      return absl::StrCat("gemmd.", call.method);
    case CallSpan::Kind::kBatch:
      return "gemmd.batch";
    case CallSpan::Kind::kArmedRun:
      return "gemmd.armed_run";
  }
  return "";
}

void EncodeCall(const CallSpan& call, otlp::Span* span) {
  span->set_trace_id(absl::HexStringToBytes(call.trace_id));
  span->set_span_id(absl::HexStringToBytes(call.span_id));
  span->set_parent_span_id(absl::HexStringToBytes(call.parent_id));
  span->set_name(NameOf(call));
  span->set_kind(otlp::Span::SPAN_KIND_SERVER);
  SetTime(call.begin, call.duration, span);
  Attributes* attributes = span->mutable_attributes();
  if (call.kind == CallSpan::Kind::kBatch) Add("gemmd.sequence", call.number, attributes);
  if (call.kind == CallSpan::Kind::kArmedRun) Add("gemmd.slot", call.number, attributes);
  if (call.kind != CallSpan::Kind::kArmedRun) Add("rpc.system", "grpc", attributes);
  Add("rpc.method", call.method, attributes);
  Add("gemmd.tenant", call.tenant, attributes);
  Add("gemmd.request", call.request, attributes);
  Add("gemmd.code", call.code, attributes);
  Add("gemmd.reason", call.reason, attributes);
  if (call.code == "OK") return;
  span->mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
  span->mutable_status()->set_message(call.message);
}

void EncodePart(const CallSpan& call, size_t index, otlp::Span* span) {
  const SpanPart& part = call.parts[index];
  span->set_trace_id(absl::HexStringToBytes(call.trace_id));
  const std::string id = SpanId(std::hash<std::string>{}(call.span_id), index + 1);
  span->set_span_id(absl::HexStringToBytes(id));
  span->set_parent_span_id(absl::HexStringToBytes(call.span_id));
  const std::string_view name = NameOf(part.kind);
  span->set_name(name.data(), name.size());
  span->set_kind(otlp::Span::SPAN_KIND_INTERNAL);
  SetTime(part.begin, part.duration, span);
  Attributes* attributes = span->mutable_attributes();
  Add("gemmd.device", part.device, attributes);
  Add("gemmd.kernel", part.kernel, attributes);
  if (part.kind == SpanPart::Kind::kDevice) Add("gemmd.ops", part.ops, attributes);
  if (part.kind == SpanPart::Kind::kTransfer) Add("gemmd.bytes", part.bytes, attributes);
}

}  // namespace

otlp::ExportTraceServiceRequest Encode(const std::vector<CallSpan>& calls,
                                       const std::string& instance) {
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans* resource = request.add_resource_spans();
  Attributes* attributes = resource->mutable_resource()->mutable_attributes();
  Add("service.name", "gemmd", attributes);
  Add("service.version", kVersion, attributes);
  Add("service.instance.id", instance, attributes);
  otlp::ScopeSpans* scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("gemmd");
  scope->mutable_scope()->set_version(std::string(kVersion));
  for (const CallSpan& call : calls) {
    EncodeCall(call, scope->add_spans());
    for (size_t i = 0; i < call.parts.size(); ++i) EncodePart(call, i, scope->add_spans());
  }
  return request;
}

}  // namespace gemmd::server
