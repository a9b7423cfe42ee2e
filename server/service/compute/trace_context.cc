#include "server/service/compute/trace_context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

constexpr size_t kTraceAt = 3;
constexpr size_t kTraceBytes = 32;
constexpr size_t kSpanAt = kTraceAt + kTraceBytes + 1;
constexpr size_t kSpanBytes = 16;
constexpr size_t kFlagsAt = kSpanAt + kSpanBytes + 1;
constexpr size_t kContextBytes = kFlagsAt + 2;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<TraceContext> TraceContext::Parse(std::string_view header) {
  if (header.size() < kContextBytes) return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  const std::string_view trace = header.substr(kTraceAt, kTraceBytes);
  const std::string_view span = header.substr(kSpanAt, kSpanBytes);
  const std::string_view flags = header.substr(kFlagsAt, 2);
  const bool dashes = header[2] == '-' && header[kSpanAt - 1] == '-' && header[kFlagsAt - 1] == '-';
  if (!dashes || !IsHex(version) || !IsHex(trace) || !IsHex(span) || !IsHex(flags)) {
    return std::nullopt;
  }
  if (version == "ff" || IsZero(trace) || IsZero(span)) return std::nullopt;
  if (header.size() > kContextBytes && (version == "00" || header[kContextBytes] != '-'))
    return std::nullopt;
  return TraceContext{std::string(trace), std::string(span), std::string(flags)};
}

bool TraceContext::sampled() const {
  const char low = flags.back();
  return (low <= '9' ? low - '0' : low - 'a' + 10) % 2 == 1;
}

std::string TraceContext::Response(std::string_view span_id) const {
  return absl::StrCat("00-", trace_id, "-", Text(span_id), "-", flags);
}

std::string SpanId(uint64_t instance, uint64_t call) {
  // splitmix64: a bijection, so two calls of one daemon never share an id.
  uint64_t id = instance + call * 0x9e3779b97f4a7c15;
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9;
  id = (id ^ (id >> 27)) * 0x94d049bb133111eb;
  id ^= id >> 31;
  return absl::StrCat(absl::Hex(id == 0 ? 1 : id, absl::kZeroPad16));
}

}  // namespace gemmd::server
