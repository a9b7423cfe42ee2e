#include "server/engine/observe/tenant_metrics.h"

#include <utility>

#include "absl/time/time.h"
#include "server/engine/observe/exposition.h"

namespace gemmd::server {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::vector<MetricFamily> TenantMetrics::Collect() const {
  FamilyBuilder sessions("gemmd_tenant_sessions", "Sessions open, by tenant.", MetricType::Gauge);
  FamilyBuilder bytes("gemmd_tenant_buffer_bytes", "Bytes of buffers alive, by tenant.",
                      MetricType::Gauge);
  FamilyBuilder host("gemmd_tenant_host_bytes",
                     "Host memory held beside buffers by plans, programs and results, by tenant.",
                     MetricType::Gauge);
  FamilyBuilder queued("gemmd_tenant_queued_device_seconds",
                       "Estimated device seconds of programs accepted and not finished, by tenant.",
                       MetricType::Gauge);
  for (const Tenant* tenant : tenants_.All()) {
    const std::vector<prometheus::ClientMetric::Label> labels = {{"tenant", tenant->name()}};
    const Tenant::Usage usage = tenant->usage();
    sessions.Add(labels, static_cast<double>(usage.sessions));
    bytes.Add(labels, static_cast<double>(usage.buffer_bytes));
    host.Add(labels, static_cast<double>(usage.host_bytes));
    queued.Add(labels, absl::ToDoubleSeconds(usage.queued_device_time));
  }
  std::vector<MetricFamily> families;
  for (FamilyBuilder* family : {&sessions, &bytes, &host, &queued}) {
    std::move(*family).AppendTo(families);
  }
  return families;
}

}  // namespace gemmd::server
