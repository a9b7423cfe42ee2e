#include <string>

#include "server/engine/observe/state_metrics.h"
#include "server/engine/tuning/device_tuner.h"

namespace gemmd::server {

void ReadTuning(const std::vector<const DeviceTuner*>& tuners, Families& families) {
  FamilyBuilder& shapes =
      families.Gauge("gemmd_tuning_shapes", "Shapes whose measured times are kept.");
  FamilyBuilder& measured = families.Counter(
      "gemmd_tuning_measured_total", "Shapes that were to be measured, by whether they were.");
  FamilyBuilder& seconds = families.Counter("gemmd_tuning_device_seconds_total",
                                            "Device time that measuring kernels took.");
  FamilyBuilder& files = families.Counter(
      "gemmd_tuning_files_total", "Tuning files read at start or written, by what came of it.");
  FamilyBuilder& calls =
      families.Counter("gemmd_tuning_calls_total",
                       "Matmuls of kernels that can be tuned, by where the choice came from.");
  for (const DeviceTuner* tuner : tuners) {
    const std::string& device = tuner->device().name();
    const DeviceTuner::Counts counts = tuner->counts();
    const ServedShapes::Totals totals = tuner->device().lane().served().totals();
    shapes.Add({{"device", device}}, tuner->tuner().kept_shapes());
    seconds.Add({{"device", device}}, counts.device_seconds);
    const auto add = [&](FamilyBuilder& family, const char* label, const char* value,
                         int64_t count) {
      family.Add({{"device", device}, {label, value}}, static_cast<double>(count));
    };
    add(measured, "result", "measured", counts.measured);
    add(measured, "result", "passed_over", counts.passed_over);
    add(files, "result", "loaded", counts.loaded);
    add(files, "result", "partial", counts.partial);
    add(files, "result", "rejected", counts.rejected);
    add(files, "result", "written", counts.written);
    add(files, "result", "unwritten", counts.unwritten);
    add(calls, "choice", "tuned", totals.tuned);
    add(calls, "choice", "table", totals.shipped);
    add(calls, "choice", "model", totals.modelled);
  }
}

}  // namespace gemmd::server
