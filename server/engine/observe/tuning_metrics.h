// What tuners have done and what it is worth, read at each scrape: gemmd_tuning_shapes,
// gemmd_tuning_measured_total, gemmd_tuning_device_seconds_total, gemmd_tuning_files_total,
// gemmd_tuning_calls_total. Nothing where no device can be tuned.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_TUNING_METRICS_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_TUNING_METRICS_H_

#include <vector>

#include "server/engine/observe/exposition.h"
#include "server/engine/tuning/device_tuner.h"

namespace gemmd::server {

class TuningMetrics : public ReadSource {
 public:
  // The tuners outlive this.
  explicit TuningMetrics(std::vector<const DeviceTuner*> tuners);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_TUNING_METRICS_H_
