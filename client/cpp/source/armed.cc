#include "client/cpp/armed.h"

#include <google/protobuf/util/time_util.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/armed/slot.h"
#include "client/cpp/internal/calls/arming.h"
#include "client/cpp/internal/connect/forked.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/plan.h"
#include "client/cpp/session.h"
#include "gemmd/v1/armed_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr int kSlots = 512;  // of a session's region: 100 KiB
constexpr absl::Duration kDisarmTimeout = absl::Seconds(5);

absl::Status ToStatus(const armed::Outcome& outcome) {
  return absl::Status(static_cast<absl::StatusCode>(outcome.code), outcome.message);
}

absl::Status Nothing() { return absl::FailedPreconditionError("this Armed object holds no plan"); }

absl::Status SendDisarm(const SessionCore& session, int slot, const CallOptions& options) {
  v1::DisarmPlanRequest request;
  request.add_slots(slot);
  return session.Ask<v1::DisarmPlanResponse>(request, options).status();
}

// The UUID of the GPU that a device of the daemon is; empty for a CPU.
absl::StatusOr<std::string> GpuOf(const SessionCore& session, const std::string& device,
                                  const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(
      const v1::ListDevicesResponse response,
      session.client().Ask<v1::ListDevicesResponse>(v1::ListDevicesRequest(), options));
  for (const v1::Device& one : response.devices()) {
    if (one.name() == device) return one.gpu_uuid();
  }
  return absl::NotFoundError(absl::StrCat("the daemon has no device ", device));
}

v1::ArmPlanRequest RequestOf(const Plan& plan, absl::Span<const Rebinding> bindings,
                             const ArmOptions& options) {
  v1::ArmPlanRequest request;
  request.set_plan_id(std::string(plan.id().bytes()));
  for (const Rebinding& one : bindings) {
    v1::Rebinding& rebind = *request.add_rebind();
    rebind.set_from_buffer_id(std::string(one.from.bytes()));
    rebind.set_to_buffer_id(std::string(one.to.bytes()));
  }
  request.set_priority(static_cast<v1::Priority>(options.priority));
  request.set_rung_by_stream(options.rung_by_stream);
  if (options.deadline != absl::InfiniteDuration()) {
    *request.mutable_deadline() = google::protobuf::util::TimeUtil::NanosecondsToDuration(
        absl::ToInt64Nanoseconds(options.deadline));
  }
  return request;
}

}  // namespace

struct Armed::State {
  std::shared_ptr<SessionCore> session;  // shared: an armed plan may outlive the Session object
  int index = -1;
  std::string device;
  absl::Duration estimate;
  std::unique_ptr<armed::Slot> slot;
};

Armed::Armed() = default;
Armed::Armed(std::unique_ptr<State> state) : state_(std::move(state)) {}
Armed::Armed(Armed&&) noexcept = default;

Armed::~Armed() {
  if (Forked()) state_.release();  // the slot is the parent's, which still rings it
  if (!state_) return;
  const absl::Status status = Disarm({.timeout = kDisarmTimeout});
  (void)status;  // the session's end disarms, too
}

Armed& Armed::operator=(Armed&& other) noexcept {
  Armed old(std::move(other));
  std::swap(state_, old.state_);
  return *this;
}

const Armed::State& Armed::state() const {
  if (state_) return *state_;
  static const State& none = *new State;
  return none;
}

int Armed::slot() const { return state().index; }
const std::string& Armed::device() const { return state().device; }
absl::Duration Armed::estimate() const { return state().estimate; }

absl::Status Armed::MayCall() const { return state_ ? CheckForked() : Nothing(); }

absl::Status Armed::Ring() {
  GEMMD_RETURN_IF_ERROR(MayCall());
  return ToStatus(state_->slot->Ring());
}

absl::Status Armed::Wait(absl::Duration timeout) {
  GEMMD_RETURN_IF_ERROR(MayCall());
  const bool forever = timeout == absl::InfiniteDuration();
  return ToStatus(state_->slot->Wait(forever ? -1 : std::max(0.0, absl::ToDoubleSeconds(timeout))));
}

bool Armed::Done() const { return state_ && state_->slot->Done(); }

absl::Status Armed::RingOn(CUstream_st* stream) {
  GEMMD_RETURN_IF_ERROR(MayCall());
  return ToStatus(state_->slot->RingOn(stream));
}

absl::Status Armed::WaitOn(CUstream_st* stream) {
  GEMMD_RETURN_IF_ERROR(MayCall());
  return ToStatus(state_->slot->WaitOn(stream));
}

absl::Status Armed::status() const { return state_ ? ToStatus(state_->slot->Status()) : Nothing(); }

ArmedReport Armed::report() const {
  if (!state_) return {.status = Nothing()};
  const armed::RunReport last = state_->slot->Report();
  return {.run = static_cast<int64_t>(last.run),
          .queued = absl::Nanoseconds(last.queued_ns),
          .device = absl::Nanoseconds(last.device_ns),
          .status = absl::Status(static_cast<absl::StatusCode>(last.code), last.message)};
}

absl::Status Armed::Disarm(const CallOptions& options) {
  GEMMD_RETURN_IF_ERROR(MayCall());
  const std::unique_ptr<State> state = std::move(state_);
  // The slot goes after the answer: from then on the library ends what streams still ring.
  return SendDisarm(*state->session, state->index, options);
}

absl::StatusOr<std::shared_ptr<armed::Region>> Arming::Region(const SessionCore& session,
                                                              const CallOptions& options) {
  absl::MutexLock lock(&mu_);
  if (region_ != nullptr) return region_;
  GEMMD_RETURN_IF_ERROR(session.client().ShareSocket().status());
  v1::GetArmedRegionRequest request;
  request.set_slots(kSlots);
  GEMMD_ASSIGN_OR_RETURN(const v1::ArmedRegion parts,
                         session.Ask<v1::ArmedRegion>(request, options));
  GEMMD_ASSIGN_OR_RETURN(const int memory,
                         FetchDescriptor(parts.share_socket(), parts.region_token()));
  const absl::StatusOr<int> wake = FetchDescriptor(parts.share_socket(), parts.wake_token());
  if (!wake.ok()) {
    close(memory);
    return wake.status();
  }
  armed::Outcome why;
  region_ = armed::Region::Open({.memory_fd = memory,
                                 .wake_fd = *wake,
                                 .size_bytes = parts.size_bytes(),
                                 .slots = parts.slots(),
                                 .layout_version = parts.layout_version(),
                                 .share_socket = parts.share_socket()},
                                why);
  if (region_ == nullptr) return ToStatus(why);
  return region_;
}

absl::StatusOr<Armed> Session::Arm(const Plan& plan, absl::Span<const Rebinding> bindings) {
  return Arm(plan, bindings, ArmOptions());
}

absl::StatusOr<Armed> Session::Arm(const Plan& plan, absl::Span<const Rebinding> bindings,
                                   const ArmOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<armed::Region> region,
                         core_->arming().Region(*core_, options.call));
  GEMMD_ASSIGN_OR_RETURN(
      const v1::ArmedPlan armed,
      core_->Ask<v1::ArmedPlan>(RequestOf(plan, bindings, options), options.call));
  if (armed.slot() < 0 || armed.slot() >= static_cast<int>(region->slots())) {
    return absl::InternalError(
        absl::StrCat("the server's slot ", armed.slot(), " is none of ", region->slots()));
  }
  armed::Slot::Options slot = {.rung_by_stream = options.rung_by_stream};
  if (options.rung_by_stream) {
    const absl::StatusOr<std::string> gpu = GpuOf(*core_, armed.device(), options.call);
    if (!gpu.ok()) {
      (void)SendDisarm(*core_, armed.slot(), options.call);
      return gpu.status();
    }
    slot.gpu_uuid = *gpu;
  }
  auto state = std::make_unique<Armed::State>();
  state->session = core_;
  state->index = armed.slot();
  state->device = armed.device();
  state->estimate = absl::Seconds(armed.estimated_seconds());
  state->slot = std::make_unique<armed::Slot>(region, static_cast<uint32_t>(armed.slot()), slot);
  return Armed(std::move(state));
}

}  // namespace gemmd::client
