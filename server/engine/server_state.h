// ServerState: everything the daemon is apart from the wire, in the order it is built. Services,
// tests and fuzzers work on one of these; main makes the only one of a daemon.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/backend.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/observe/audit.h"
#include "server/engine/observe/log.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/observe/span_queue.h"
#include "server/engine/observe/timeline.h"
#include "server/engine/scheduling/device.h"
#include "server/engine/sessions/access.h"
#include "server/engine/sessions/published.h"
#include "server/engine/sessions/session_store.h"
#include "server/engine/sessions/tenant.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

class ArmedPlans;
class BackgroundTuning;
class DeviceTuner;
class Families;
class SourceRegistration;

class ServerState {
 public:
  // `backends` has at least one. UNAVAILABLE when the share socket cannot be made,
  // INVALID_ARGUMENT or NOT_FOUND when the token file is not right. Clock, log and metrics outlive
  // it.
  static absl::StatusOr<std::unique_ptr<ServerState>> Create(
      const Config& config, std::vector<std::unique_ptr<kernels::Backend>> backends,
      const Clock& clock, Log& log, Metrics& metrics, std::string instance_id);
  // Ends every session, then stops the lanes. No call may be under way.
  ~ServerState();

  const Clock& clock() const { return clock_; }
  Log& log() { return log_; }
  Metrics& metrics() { return metrics_; }
  TenantDirectory& tenants() { return tenants_; }
  Timeline& timeline() { return timeline_; }
  SpanQueue& spans() { return spans_; }
  Access& access() { return *access_; }
  Audit& audit() { return audit_; }
  SessionStore& sessions() { return *sessions_; }
  PublishedBuffers& published() { return published_; }
  ShareSocket* share() { return share_.get(); }  // null when disabled
  ArmedPlans& armed() { return *armed_; }
  const std::string& instance_id() const { return instance_id_; }
  absl::Time start_time() const { return start_time_; }

  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  // Looks for devices that have faulted since the last call; logs each. True when there are any.
  // One thread at a time.
  bool NoteFaults();
  int serving_devices() const;
  // By name; for "" one that serves and has room, with the least work queued. NOT_FOUND lists what
  // there is.
  absl::StatusOr<Device*> FindDevice(std::string_view name) const;

  // The tuner of the device called so; of "" the first that has one. NOT_FOUND for a name that no
  // device has, UNIMPLEMENTED, with the remedy, when there is nothing to tune.
  absl::StatusOr<DeviceTuner*> FindTuner(std::string_view name) const;

  // Set once the notice of a drain is over: OK, or UNAVAILABLE for anything that would start new
  // work.
  absl::Status CheckOpen() const;
  void Refuse() { refusing_.store(true, std::memory_order_release); }
  // Set from the first signal: ServerInfo shows it.
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  void set_draining();

  // Past a drain's limit: answers every program that is queued, and stops those that run.
  void StopPrograms();

  // Counts `status` among a tenant's refusals if it is one: a limit, a deadline, a drain.
  void CountRejection(const Tenant& tenant, const absl::Status& status);

  void Reconfigure(const Config& config);

 private:
  ServerState(const Config& config, std::vector<std::unique_ptr<kernels::Backend>> backends,
              const Clock& clock, Log& log, Metrics& metrics, std::string instance_id);

  void AddTuners(const Config& config);
  void ReadMetrics(Families& families) const;

  const Clock& clock_;
  Log& log_;
  Metrics& metrics_;
  const std::string instance_id_;
  const absl::Time start_time_;
  TenantDirectory tenants_;
  Timeline timeline_;
  SpanQueue spans_;
  std::unique_ptr<Access> access_;
  Audit audit_;
  std::unique_ptr<ArmedPlans> armed_;  // before the devices: programs that end tell it
  std::vector<std::unique_ptr<Device>> devices_;
  PublishedBuffers published_;
  std::vector<std::unique_ptr<DeviceTuner>> tuners_;           // of those devices that can be tuned
  std::vector<std::unique_ptr<BackgroundTuning>> background_;  // ends before the tuners do
  std::unique_ptr<SessionStore> sessions_;
  std::unique_ptr<ShareSocket> share_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> refusing_{false};
  absl::Notification stop_;
  std::thread reaper_;
  std::unique_ptr<SourceRegistration> read_metrics_;  // last: it reads what is above
};

}  // namespace gemmd::server
