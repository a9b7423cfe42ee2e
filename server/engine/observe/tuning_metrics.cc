#include "server/engine/observe/tuning_metrics.h"

#include <string>
#include <utility>

#include "server/engine/observe/exposition.h"

namespace gemmd::server {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::vector<MetricFamily> TuningMetrics::Collect() const {
  FamilyBuilder shapes("gemmd_tuning_shapes", "Shapes whose measured times are kept.",
                       MetricType::Gauge);
  FamilyBuilder measured("gemmd_tuning_measured_total",
                         "Shapes that were to be measured, by whether they were.",
                         MetricType::Counter);
  FamilyBuilder seconds("gemmd_tuning_device_seconds_total",
                        "Device time that measuring kernels took.", MetricType::Counter);
  FamilyBuilder files("gemmd_tuning_files_total",
                      "Tuning files read at start or written, by what came of it.",
                      MetricType::Counter);
  FamilyBuilder calls("gemmd_tuning_calls_total",
                      "Matmuls of kernels that can be tuned, by where the choice came from.",
                      MetricType::Counter);
  for (const DeviceTuner* tuner : tuners_) {
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
  std::vector<MetricFamily> families;
  for (FamilyBuilder* family : {&shapes, &measured, &seconds, &files, &calls}) {
    std::move(*family).AppendTo(families);
  }
  return families;
}

}  // namespace gemmd::server
