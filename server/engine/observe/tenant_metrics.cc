#include <vector>

#include "absl/time/time.h"
#include "server/engine/observe/state_metrics.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

void ReadTenants(const TenantDirectory& tenants, Families& families) {
  FamilyBuilder& sessions = families.Gauge("gemmd_tenant_sessions", "Sessions open, by tenant.");
  FamilyBuilder& bytes =
      families.Gauge("gemmd_tenant_buffer_bytes", "Bytes of buffers alive, by tenant.");
  FamilyBuilder& host =
      families.Gauge("gemmd_tenant_host_bytes",
                     "Host memory held beside buffers by plans, programs and results, by tenant.");
  FamilyBuilder& queued =
      families.Gauge("gemmd_tenant_queued_device_seconds",
                     "Estimated device seconds of programs accepted and not finished, by tenant.");
  for (const Tenant* tenant : tenants.All()) {
    const std::vector<prometheus::ClientMetric::Label> labels = {{"tenant", tenant->name()}};
    const Tenant::Usage usage = tenant->usage();
    sessions.Add(labels, static_cast<double>(usage.sessions));
    bytes.Add(labels, static_cast<double>(usage.buffer_bytes));
    host.Add(labels, static_cast<double>(usage.host_bytes));
    queued.Add(labels, absl::ToDoubleSeconds(usage.queued_device_time));
  }
}

}  // namespace gemmd::server
