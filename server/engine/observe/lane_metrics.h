// What a lane counts. References are kept by kernel and dtype, so that a completed op costs a few
// atomic adds.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/scheduling/job.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace gemmd::server {

// What a lane's jobs are. Transfers are Copies between a GPU's memory and the host's: the copy
// engine does them beside the programs.
enum class LaneKind : uint8_t { kPrograms, kTransfers };

class LaneMetrics {
 public:
  LaneMetrics(Metrics& metrics, std::string device, LaneKind kind);

  void Accepted();
  void Answered();
  void Launched(double seconds);  // time the launch call took
  void Completed(const Job& job, const JobResult& result);
  void SetQueue(const std::array<int64_t, kPriorities>& depth, double queued_seconds);

 private:
  struct StepCounters {
    prometheus::Counter* ok = nullptr;
    prometheus::Counter* failed = nullptr;
    prometheus::Counter* flops = nullptr;
    prometheus::Histogram* seconds = nullptr;
    prometheus::Counter* fallback = nullptr;  // null unless the kernel was a fallback
  };
  const StepCounters& Of(const kernels::Program::Step& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics& metrics_;
  const std::string device_;
  std::array<prometheus::Histogram*, kPriorities> queue_seconds_;
  std::array<prometheus::Gauge*, kPriorities> depth_ = {};  // kPrograms
  prometheus::Gauge* queued_device_seconds_ = nullptr;      // likewise
  prometheus::Gauge* queued_transfers_ = nullptr;           // kTransfers
  prometheus::Gauge& programs_;
  prometheus::Histogram& launch_seconds_;
  prometheus::Counter& busy_seconds_;
  std::array<prometheus::Counter*, kernels::kLaunchWays> launches_;
  // By whether a ring brought it, and whether it succeeded.
  std::array<std::array<prometheus::Counter*, 2>, 2> runs_;
  absl::Mutex mutex_;
  // Keyed by the names' addresses: they belong to the backend and never move.
  absl::flat_hash_map<std::tuple<const char*, const char*, int, int>, StepCounters> steps_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Tenant*, prometheus::Counter*> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
