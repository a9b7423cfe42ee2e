#include "server/engine/server_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/clock_steps.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/observe/state_metrics.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "server/engine/tuning/background_tuning.h"
#include "server/engine/tuning/device_tuner.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// How late an expired session may be ended.
constexpr absl::Duration kReapEvery = absl::Milliseconds(50);

// Of the serving devices with at least half of the most free memory that one has, the one with the
// least device time queued; of equals the one with the most free. Room comes first: a session that
// does not fit fails, one behind another waits. The first device when none serves.
Device* ChooseDevice(const std::vector<std::unique_ptr<Device>>& devices) {
  const auto free = [](Device& device) {
    return std::max<int64_t>(0, device.backend().info().memory_bytes - device.used_bytes());
  };
  int64_t most = 0;
  for (const auto& device : devices) {
    if (!device->fenced()) most = std::max(most, free(*device));
  }
  Device* best = nullptr;
  std::pair<double, int64_t> least;  // queued seconds, and the free memory with its sign turned
  for (const auto& device : devices) {
    const int64_t room = free(*device);
    if (device->fenced() || room < most / 2) continue;
    const std::pair<double, int64_t> cost(device->stats().queued_seconds, -room);
    if (best != nullptr && cost >= least) continue;
    best = device.get();
    least = cost;
  }
  return best != nullptr ? best : devices.front().get();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerState>> ServerState::Create(
    const Config& config, std::vector<std::unique_ptr<kernels::Backend>> backends,
    const Clock& clock, Log& log, Metrics& metrics, std::string instance_id) {
  std::unique_ptr<ServerState> state(
      new ServerState(config, std::move(backends), clock, log, metrics, std::move(instance_id)));
  GEMMD_ASSIGN_OR_RETURN(state->access_,
                         Access::Create(config.auth, state->tenants_, clock, log, metrics));
  if (!config.share.disabled) {
    GEMMD_ASSIGN_OR_RETURN(state->share_, ShareSocket::Start(config.share, clock, log));
  }
  state->reaper_ = std::thread([state = state.get()] {
    ClockSteps steps(state->clock_.Ahead());
    // A sleep: absl's waits with a limit last an hour longer where the clock is set back by one.
    for (; !state->stop_.HasBeenNotified(); absl::SleepFor(kReapEvery)) {
      const absl::Duration step = steps.Take(state->clock_.Ahead());
      if (step != absl::ZeroDuration()) {
        state->log_.Warning("clock_set", {{"seconds", absl::ToDoubleSeconds(step)}});
        state->sessions_->MoveTimes(step);
        state->published_.MoveTimes(step);
      }
      state->access_->Poll();
      // A drain cuts Hold streams, and what their sessions queued is still to be answered: nothing
      // expires any more.
      if (state->draining()) continue;
      state->sessions_->Reap();
      for (const std::string& name : state->published_.Expire()) {
        state->log_.Info("published_expired", {{"name", name}});
      }
    }
  });
  return state;
}

ServerState::ServerState(const Config& config,
                         std::vector<std::unique_ptr<kernels::Backend>> backends,
                         const Clock& clock, Log& log, Metrics& metrics, std::string instance_id)
    : clock_(clock),
      log_(log),
      metrics_(metrics),
      instance_id_(std::move(instance_id)),
      start_time_(clock.Now()),
      tenants_(config.tenants),
      spans_(!config.tracing.otlp_endpoint.empty(), config.tracing.sample),
      audit_(clock, log),
      armed_(std::make_unique<ArmedPlans>(
          config.scheduler, clock, metrics, spans_, [this] { return CheckOpen(); },
          [this](const Tenant& tenant, const absl::Status& status) {
            CountRejection(tenant, status);
          })),
      published_(clock) {
  for (auto& backend : backends) {
    devices_.push_back(
        std::make_unique<Device>(std::move(backend), config.scheduler, clock, metrics, timeline_));
    for (const kernels::KernelInfo& kernel : devices_.back()->backend().kernels()) {
      if (!kernel.quarantined) continue;
      log.Error("kernel_quarantined", {{"device", devices_.back()->name()},
                                       {"kernel", kernel.name},
                                       {"message", kernel.why_off}});
    }
  }
  AddTuners(config);
  sessions_ = std::make_unique<SessionStore>(
      config.session, clock, metrics, log, [this](Session& session, EndCause cause) {
        const absl::Status status = WithReason(
            absl::CancelledError(absl::StrCat("the session ended (", Text(Name(cause)), ")")),
            reason::kSessionGone);
        for (const auto& device : devices_) device->CancelSession(session.key(), status);
      });
  read_metrics_ = metrics.Register([this](Families& families) { ReadMetrics(families); });
}

void ServerState::ReadMetrics(Families& families) const {
  std::vector<const kernels::DeviceInfo*> infos;
  for (const auto& device : devices_) infos.push_back(&device->backend().info());
  ReadDevices(infos, families);
  ReadTenants(tenants_, families);
  std::vector<const DeviceTuner*> tuners;
  for (const auto& tuner : tuners_) tuners.push_back(tuner.get());
  ReadTuning(tuners, families);
  families.AddCounter("gemmd_spans_sent_total",
                      "Spans of sampled calls that the collector of traces has.", spans_.sent());
  families.AddCounter("gemmd_spans_dropped_total",
                      "Spans that found no room while the collector was slow or lost.",
                      spans_.dropped());
  families.AddCounter("gemmd_spans_failed_total",
                      "Spans that the collector refused or could not be given.", spans_.failed());
}

void ServerState::AddTuners(const Config& config) {
  for (const auto& device : devices_) {
    if (device->backend().tuner() == nullptr) continue;
    std::string file;
    for (const DeviceConfig& entry : config.devices) {
      if (entry.name == device->name()) file = entry.tuning_file;
    }
    Tenant& tenant = tenants_.AddInternal(DeviceTuner::OwnTenant());
    tuners_.push_back(
        std::make_unique<DeviceTuner>(*device, tenant, clock_, log_, std::move(file)));
    if (config.tuning.background) {
      background_.push_back(std::make_unique<BackgroundTuning>(
          *tuners_.back(),
          [&lane = device->lane()] { return lane.served().Most(ServedShapes::kMost); },
          config.tuning.max_share, log_));
    }
  }
}

ServerState::~ServerState() {
  read_metrics_.reset();
  stop_.Notify();
  if (reaper_.joinable()) reaper_.join();  // not there if Create failed
  sessions_->EndAll(EndCause::kDrained);
  armed_->poller().Stop();
  background_.clear();
  for (const auto& tuner : tuners_) tuner->Stop();
  published_.Clear();
  // Programs under way hold sessions and buffers: they end while the store and the devices are
  // still there.
  for (const auto& device : devices_) device->Stop();
}

absl::StatusOr<Device*> ServerState::FindDevice(std::string_view name) const {
  if (name.empty()) return ChooseDevice(devices_);
  std::string names;
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
    absl::StrAppend(&names, names.empty() ? "" : ", ", device->name());
  }
  return absl::NotFoundError(absl::StrCat("device \"", absl::CHexEscape(Text(name.substr(0, 64))),
                                          "\" does not exist here; there is ", names));
}

absl::StatusOr<DeviceTuner*> ServerState::FindTuner(std::string_view name) const {
  if (!name.empty()) GEMMD_RETURN_IF_ERROR(FindDevice(name).status());
  for (const auto& tuner : tuners_) {
    if (name.empty() || tuner->device().name() == name) return tuner.get();
  }
  return absl::UnimplementedError(absl::StrCat(
      name.empty() ? std::string("no device here has a")
                   : absl::StrCat("device ", Text(name), " has no"),
      " choice of kernels to measure; tune a GPU (cuda:0), whose FP8 matmuls have one"));
}

bool ServerState::NoteFaults() {
  bool any = false;
  for (const auto& device : devices_) {
    if (!device->NoteFault()) continue;
    any = true;
    const std::string message(device->backend().health().message());
    // Under MPS the fault may have been another process's.
    log_.Error("device_fenced",
               {{"device", device->name()}, {"mps", armed().under_mps()}, {"message", message}});
  }
  return any;
}

int ServerState::serving_devices() const {
  return static_cast<int>(std::count_if(devices_.begin(), devices_.end(),
                                        [](const auto& device) { return !device->fenced(); }));
}

void ServerState::set_draining() {
  draining_.store(true, std::memory_order_release);
  metrics_.Draining().Set(1);
}

void ServerState::StopPrograms() {
  const absl::Status why =
      WithReason(absl::UnavailableError("the server stops at the end of its drain; go to another"),
                 reason::kDraining);
  for (const auto& device : devices_) device->CancelAll(why);
}

void ServerState::CountRejection(const Tenant& tenant, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) && !absl::IsDeadlineExceeded(status) &&
      !absl::IsUnavailable(status)) {
    return;
  }
  const std::string reason = ReasonOf(status);
  metrics_.Rejected(reason).Increment();
  metrics_.TenantRejected(tenant.name(), reason).Increment();
}

absl::Status ServerState::CheckOpen() const {
  if (!refusing_.load(std::memory_order_acquire)) return absl::OkStatus();
  return WithReason(absl::UnavailableError("the server is draining; go to another"),
                    reason::kDraining);
}

void ServerState::Reconfigure(const Config& config) {
  tenants_.Reconfigure(config.tenants);
  access_->Reconfigure(config.auth);
  sessions_->Reconfigure(config.session);
  armed_->poller().Reconfigure(config.scheduler);
  for (const auto& device : devices_) device->Reconfigure(config.scheduler);
  log_.Configure(config.log);
}

}  // namespace gemmd::server
