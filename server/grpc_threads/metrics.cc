#include "server/grpc_threads/metrics.h"

#include <utility>

#include "server/engine/observe/exposition.h"
#include "server/grpc_threads/grpc_threads.h"

namespace gemmd::grpc_threads {

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const Polled polled = BusyPolled();
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, double value) {
    server::FamilyBuilder family(name, help, prometheus::MetricType::Counter);
    family.Add({}, value);
    std::move(family).AppendTo(families);
  };
  add("gemmd_busy_poll_seconds_total",
      "Seconds that a thread looked for bytes of connections instead of sleeping.", polled.seconds);
  add("gemmd_busy_poll_found_total", "Times that bytes came meanwhile.",
      static_cast<double>(polled.found));
  return families;
}

}  // namespace gemmd::grpc_threads
