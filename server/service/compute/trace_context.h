// W3C trace context: what a caller's tracing system calls the call, so that our log lines and its
// spans can be put side by side. https://www.w3.org/TR/trace-context/, "traceparent".

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gemmd::server {

struct TraceContext {
  std::string trace_id;  // 32 lower-case hex digits, not all 0
  std::string span_id;   // 16, likewise: the caller's
  std::string flags;     // 2

  // The caller's tracing system keeps this trace.
  bool sampled() const;

  // Of "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Nothing for what is not one: a
  // broken header must not break the call. A later version's is read as far as this one goes.
  static std::optional<TraceContext> Parse(std::string_view traceparent);

  // The same trace with our span, for the reply's "traceresponse".
  std::string Response(std::string_view span_id) const;
};

// 16 hex digits, not all 0; different for each `call` of one daemon, and most likely of any two.
std::string SpanId(uint64_t instance, uint64_t call);

}  // namespace gemmd::server
