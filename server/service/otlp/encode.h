// Calls as OTLP spans: one of kind SERVER a call, and below it one for each part.

#pragma once

#include <string>
#include <vector>

#include "server/engine/observe/span_queue.h"
#include "server/service/otlp/otlp.pb.h"

namespace gemmd::server {

// `instance` is the resource's service.instance.id.
otlp::ExportTraceServiceRequest Encode(const std::vector<CallSpan>& calls,
                                       const std::string& instance);

}  // namespace gemmd::server
