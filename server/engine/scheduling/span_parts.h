// Where a program's time went, for a collector of traces.

#ifndef GEMMD_SERVER_ENGINE_SCHEDULING_SPAN_PARTS_H_
#define GEMMD_SERVER_ENGINE_SCHEDULING_SPAN_PARTS_H_

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

#endif  // GEMMD_SERVER_ENGINE_SCHEDULING_SPAN_PARTS_H_
