// What armed plans count beside what every program counts.

#pragma once

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
