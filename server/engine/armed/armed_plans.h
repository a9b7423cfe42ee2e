// ArmedPlans: what a server has for armed plans beside its sessions: the poller, the counts, and
// how a session gets its region.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/engine/armed/armed_poller.h"
#include "server/engine/armed/armed_region.h"
#include "server/engine/observe/armed_metrics.h"

namespace gemmd::server {

// Outlives every region: it goes after sessions and lanes. Thread-safe.
class ArmedPlans {
 public:
  ArmedPlans(const SchedulerConfig& config, const Clock& clock, Metrics& metrics, SpanQueue& spans,
             std::function<absl::Status()> check_open,
             std::function<void(const Tenant&, const absl::Status&)> count_rejection)
      : metrics_(metrics),
        poller_(config, metrics_),
        environment_{clock, poller_.waker(),       metrics_,
                     spans, std::move(check_open), std::move(count_rejection)} {}

  // The session's region, made by the first call. `slots` 0: the default, or what is there.
  // INVALID_ARGUMENT for more than a region may have, FAILED_PRECONDITION for more than this one
  // has.
  absl::StatusOr<std::shared_ptr<ArmedRegion>> RegionOf(Session& session, int slots);

  ArmedPoller& poller() { return poller_; }

  // Whether callers' GPU work runs beside the server's (NVIDIA MPS), instead of in turns with it.
  // Set before anything is served.
  void set_under_mps(bool under_mps) { under_mps_ = under_mps; }
  bool under_mps() const { return under_mps_; }

 private:
  ArmedMetrics metrics_;
  ArmedPoller poller_;
  ArmedEnvironment environment_;
  bool under_mps_ = false;
};

}  // namespace gemmd::server
