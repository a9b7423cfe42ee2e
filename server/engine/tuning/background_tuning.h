// BackgroundTuning: has a device's kernels measured for the shapes that it serves, while it serves.
//
// A model that has run for a minute then runs on measured kernels, without anybody asking for it.

#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/notification.h"
#include "kernels/tuner.h"
#include "server/engine/observe/log.h"
#include "server/engine/tuning/device_tuner.h"

namespace gemmd::server {

class BackgroundTuning {
 public:
  // The shapes that the device has multiplied, the most called first.
  using Served = std::function<std::vector<kernels::TuneShape>()>;

  // `tuner` outlives it. `max_share`: of the device's time, while others use it.
  BackgroundTuning(DeviceTuner& tuner, Served served, double max_share, Log& log);
  // Ends what is under way. What was measured by then is kept.
  ~BackgroundTuning();

 private:
  void Run();  // the thread
  // The most called shapes whose kernel nobody has measured, a few.
  std::vector<kernels::TuneShape> Next() const;
  void Measure(std::vector<kernels::TuneShape> shapes);

  DeviceTuner& tuner_;
  const Served served_;
  const double max_share_;
  Log& log_;
  // Not measured again before the next start, whatever came of it.
  absl::flat_hash_set<kernels::TuneShape> tried_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace gemmd::server
