// What armed plans count beside what every program counts.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_ARMED_METRICS_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_ARMED_METRICS_H_

#include "server/engine/observe/metrics.h"

namespace gemmd::server {

// References into `metrics`, looked up once. Thread-safe.
struct ArmedMetrics {
  explicit ArmedMetrics(Metrics& metrics)
      : slots(metrics.ArmedSlots()),
        ran(metrics.ArmedRuns("ok")),
        failed(metrics.ArmedRuns("failed")),
        poll_seconds(metrics.ArmedPollSeconds()) {}

  prometheus::Gauge& slots;
  prometheus::Counter& ran;
  prometheus::Counter& failed;
  prometheus::Counter& poll_seconds;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_ARMED_METRICS_H_
