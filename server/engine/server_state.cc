#include "server/engine/server_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

// How late an expired session may be ended.
constexpr absl::Duration kReapEvery = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<ServerState>> ServerState::Create(
    const Config& config, std::vector<std::unique_ptr<kernels::Backend>> backends,
    const Clock& clock, Log& log, Metrics& metrics, std::string instance_id) {
  std::unique_ptr<ServerState> state(
      new ServerState(config, std::move(backends), clock, log, metrics, std::move(instance_id)));
  if (!config.share.disabled) {
    auto share = ShareSocket::Start(config.share, clock, log);
    if (!share.ok()) return share.status();
    state->share_ = *std::move(share);
  }
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
      tenants_(config.tenants) {
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
  sessions_ = std::make_unique<SessionStore>(
      config.session, clock, metrics, log, [this](Session& session, EndCause cause) {
        const absl::Status status = WithReason(
            absl::CancelledError(absl::StrCat("the session ended (", Text(Name(cause)),
                                              ") before this program started; nothing ran")),
            reason::kSessionGone);
        for (const auto& device : devices_) device->lane().CancelSession(session.key(), status);
      });
  reaper_ = std::thread([this] {
    while (!stop_.WaitForNotificationWithTimeout(kReapEvery)) {
      // A drain cuts Hold streams, and what their sessions queued is still to be answered: nothing
      // expires any more.
      if (!draining()) sessions_->Reap();
    }
  });
}

ServerState::~ServerState() {
  stop_.Notify();
  reaper_.join();
  sessions_->EndAll(EndCause::kDrained);
  published_.Clear();
  // Programs under way hold sessions and buffers: they end while the store and the devices are
  // still there.
  for (const auto& device : devices_) device->lane().Stop();
}

absl::StatusOr<Device*> ServerState::FindDevice(std::string_view name) const {
  Device* best = nullptr;
  std::string names;
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
    absl::StrAppend(&names, names.empty() ? "" : ", ", device->name());
    const auto free = [](Device& d) { return d.backend().info().memory_bytes - d.used_bytes(); };
    const bool better = best == nullptr || best->fenced() || free(*device) > free(*best);
    if (best == nullptr || (better && !device->fenced())) best = device.get();
  }
  if (name.empty()) return best;
  return absl::NotFoundError(absl::StrCat("device \"", Text(name.substr(0, 64)),
                                          "\" does not exist here; there is ", names));
}

bool ServerState::NoteFaults() {
  bool any = false;
  for (const auto& device : devices_) {
    if (!device->NoteFault()) continue;
    any = true;
    const std::string message(device->backend().health().message());
    log_.Error("device_fenced", {{"device", device->name()}, {"message", message}});
  }
  return any;
}

int ServerState::serving_devices() const {
  return static_cast<int>(std::count_if(devices_.begin(), devices_.end(),
                                        [](const auto& device) { return !device->fenced(); }));
}

absl::Status ServerState::CheckOpen() const {
  if (!refusing_.load(std::memory_order_acquire)) return absl::OkStatus();
  return WithReason(absl::UnavailableError("the server is draining; go to another"),
                    reason::kDraining);
}

void ServerState::Reconfigure(const Config& config) {
  tenants_.Reconfigure(config.tenants);
  sessions_->Reconfigure(config.session);
  for (const auto& device : devices_) device->lane().Reconfigure(config.scheduler);
  log_.Configure(config.log);
}

}  // namespace gemmd::server
