#include "server/engine/scheduling/span_parts.h"

#include <algorithm>

namespace gemmd::server {

std::vector<SpanPart> PartsOf(const kernels::Program& program, const std::string& device,
                              const JobResult& result) {
  const kernels::LaunchResult& launch = result.launch;
  if (launch.started == absl::Time()) return {};
  const absl::Duration waited = absl::Seconds(result.queue_seconds);
  const auto steps = program.steps();
  const auto longest = std::max_element(launch.op_seconds.begin(), launch.op_seconds.end());
  const size_t index = longest - launch.op_seconds.begin();
  return {{.kind = SpanPart::Kind::kQueue,
           .begin = launch.started - waited,
           .duration = waited,
           .device = device},
          {.kind = SpanPart::Kind::kDevice,
           .begin = launch.started,
           .duration = absl::Seconds(launch.device_seconds),
           .device = device,
           .kernel = index < steps.size() ? std::string(steps[index].choice.kernel) : "",
           .ops = static_cast<int64_t>(steps.size())}};
}

}  // namespace gemmd::server
