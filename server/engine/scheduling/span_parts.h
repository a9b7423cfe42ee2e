// Where a program's time went, for a collector of traces.

#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "server/engine/observe/span_queue.h"
#include "server/engine/scheduling/job.h"

namespace gemmd::server {

// Its wait, then its run; nothing of one that never ran.
std::vector<SpanPart> PartsOf(const kernels::Program& program, const std::string& device,
                              const JobResult& result);

}  // namespace gemmd::server
