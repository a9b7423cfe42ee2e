// DeviceTuner: measures a device's kernels, shape by shape, on a thread of its own, and keeps the
// times in memory and in a file.
//
// Each measurement is a program of the device's lane, half a millisecond long, of a tenant with the
// least weight: it waits until the lane is idle, and where that never comes gets a hundredth of the
// device. Results take effect a second's worth at a time, because each change makes programs be
// compiled anew.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/shape_trial.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/observe/log.h"
#include "server/engine/scheduling/device.h"
#include "server/engine/sessions/tenant.h"
#include "server/engine/tuning/tuning_pace.h"

namespace gemmd::server {

// Thread-safe.
class DeviceTuner {
 public:
  // Of one shape: OK, with what was measured, or why it was passed over.
  struct Result {
    absl::Status status;
    kernels::TunedShape tuned;  // its `shape` always
  };
  struct Order {
    std::vector<kernels::TuneShape> shapes;
    int kernels = 8;
    int most_rounds = kernels::TuneOptions().most_rounds;
    double program_seconds = 500e-6;  // of one measurement
    int64_t max_memory_bytes = int64_t{1} << 30;
    // Background work: it measures in moments in which nobody else has work for the device, takes
    // `max_share` of the device's time, and ends when another order or no such moment comes.
    bool background = false;
    double max_share = 1;
    // On the tuner's thread, in order; `ended` exactly once, and last.
    std::function<void(const Result&)> measured;
    std::function<void(absl::Status)> ended;
  };
  struct Counts {
    int64_t measured = 0;  // shapes
    int64_t passed_over = 0;
    double device_seconds = 0;
    int64_t loaded = 0, partial = 0, rejected = 0;  // files at start
    int64_t written = 0, unwritten = 0;
  };

  static TenantConfig OwnTenant();

  // The device has a tuner. `file` may be empty: nothing is read or written. What cannot be used of
  // it is logged and counted.
  DeviceTuner(Device& device, Tenant& tenant, const Clock& clock, Log& log, std::string file);
  ~DeviceTuner() { Stop(); }
  // Ends what is under way, as a cancellation does; nothing is taken from then on.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  Device& device() const { return device_; }
  // RESOURCE_EXHAUSTED while another order is under way; one of the background is ended first. The
  // number is for Cancel.
  absl::StatusOr<uint64_t> Start(Order order) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends it with `why` once the program that runs has ended. What was measured by then is kept.
  void Cancel(uint64_t order, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  std::string Export() const;
  absl::StatusOr<kernels::TuningImport> Import(std::string_view text) ABSL_LOCKS_EXCLUDED(mutex_);

  kernels::Tuner& tuner() const { return *device_.backend().tuner(); }
  Counts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Load();
  void Save() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run();  // the thread
  absl::Status Measure(const Order& order);
  absl::StatusOr<kernels::LaunchResult> RunTrial(const Order& order,
                                                 std::shared_ptr<const kernels::Program> program,
                                                 kernels::Bindings bindings);
  // Waits a while for a moment in which nobody else has work for the device. DEADLINE_EXCEEDED when
  // there is none for background work; other work then takes its turn.
  absl::Status AwaitIdle(const Order& order) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until background work may go on, by its share.
  void AwaitShare(const Order& order) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sleeps, but not on when the order is to end.
  void Rest(absl::Duration time) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes what was measured count, and writes it.
  absl::Status KeepAll(std::vector<kernels::ShapeTimes>& measured);
  absl::Status why_ended() const ABSL_LOCKS_EXCLUDED(mutex_);

  Device& device_;
  Tenant& tenant_;
  const Clock& clock_;
  Log& log_;
  const std::string file_;
  absl::Mutex file_mutex_;  // one writer at a time
  bool keep_rejected_ ABSL_GUARDED_BY(file_mutex_) = false;
  mutable absl::Mutex mutex_;
  std::optional<Order> order_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;  // of the order there is, or the last
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);   // why it is to end; OK: it is not
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  // The thread's own.
  TuningPace pace_;
  int64_t trials_ = 0;  // that the lane has completed
  std::thread thread_;
};

}  // namespace gemmd::server
