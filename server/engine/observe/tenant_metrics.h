// What each tenant holds now, read at each scrape: gemmd_tenant_sessions,
// gemmd_tenant_buffer_bytes, gemmd_tenant_queued_device_seconds. Tenants come from the operator's
// config, so the number of series is the operator's too.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_TENANT_METRICS_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_TENANT_METRICS_H_

#include "server/engine/observe/exposition.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

class TenantMetrics : public ReadSource {
 public:
  explicit TenantMetrics(const TenantDirectory& tenants);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_TENANT_METRICS_H_
