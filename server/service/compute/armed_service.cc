#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/armed_service.grpc.pb.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/reason.h"
#include "server/service/services.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::StatusOr<std::shared_ptr<ArmedRegion>> RegionOf(Session& session) {
  if (auto region = session.armed()) return region;
  return absl::FailedPreconditionError(
      "the session has no region for armed plans; call GetArmedRegion first");
}

absl::StatusOr<std::vector<Rebinding>> ConvertRebindings(
    const google::protobuf::RepeatedPtrField<v1::Rebinding>& changes) {
  std::vector<Rebinding> converted;
  converted.reserve(changes.size());
  for (const v1::Rebinding& change : changes) {
    GEMMD_ASSIGN_OR_RETURN(auto from,
                           ConvertHandle(change.from_buffer_id(), "rebind.from_buffer_id"));
    GEMMD_ASSIGN_OR_RETURN(auto to, ConvertHandle(change.to_buffer_id(), "rebind.to_buffer_id"));
    converted.push_back({from, to});
  }
  return converted;
}

absl::StatusOr<ArmOptions> ConvertOptions(const v1::ArmPlanRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(auto priority, Convert(request.priority()));
  ArmOptions options{.priority = priority, .rung_by_stream = request.rung_by_stream()};
  if (request.has_deadline()) {
    options.deadline = FromProto(request.deadline());
    if (options.deadline <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrCat("deadline=", absl::FormatDuration(options.deadline),
                       " is not positive; it counts from each ring: leave it out for none"));
    }
  }
  return options;
}

v1::Priority WirePriority(Priority priority) {
  switch (priority) {
    case Priority::kHigh:
      return v1::PRIORITY_HIGH;
    case Priority::kNormal:
      return v1::PRIORITY_NORMAL;
    case Priority::kLow:
      return v1::PRIORITY_LOW;
  }
  return v1::PRIORITY_NORMAL;
}

void Fill(const ArmedRegion::SlotInfo& info, v1::ArmedSlot* slot) {
  slot->set_slot(info.slot);
  slot->set_plan_id(ToBytes(info.plan_id));
  slot->set_plan_label(info.label);
  slot->set_device(info.device);
  slot->set_priority(WirePriority(info.options.priority));
  slot->set_rung_by_stream(info.options.rung_by_stream);
  slot->set_running(info.running);
  slot->set_runs(info.runs);
  slot->set_failed_runs(info.failed_runs);
  slot->set_code(info.last.raw_code());
  slot->set_message(std::string(info.last.message()));
  slot->set_reason(ReasonOf(info.last));
}

absl::Status GetArmedRegion(Call& call, const v1::GetArmedRegionRequest& request,
                            v1::ArmedRegion* response) {
  ServerState& state = call.state();
  GEMMD_RETURN_IF_ERROR(state.CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  ShareSocket* share = state.share();
  if (share == nullptr) {
    return WithReason(absl::FailedPreconditionError("this server offers no shared memory "
                                                    "(share.disabled); use RunPlan"),
                      reason::kNotShared);
  }
  GEMMD_ASSIGN_OR_RETURN(auto region, state.armed().RegionOf(*use, request.slots()));
  const std::string& owner = call.tenant().name();
  GEMMD_ASSIGN_OR_RETURN(auto memory, share->Offer(region->memfd(), /*writable=*/true, owner));
  GEMMD_ASSIGN_OR_RETURN(auto wake, share->Offer(region->wake_fd(), /*writable=*/true, owner));
  response->set_region_token(ToBytes(memory));
  response->set_wake_token(ToBytes(wake));
  response->set_share_socket(share->address());
  response->set_size_bytes(region->size_bytes());
  response->set_slots(region->slots());
  response->set_layout_version(GEMMD_ARMED_VERSION);
  *response->mutable_linger() = ToProto(state.armed().poller().linger());
  *response->mutable_stream_linger() = ToProto(state.armed().poller().stream_linger());
  return absl::OkStatus();
}

absl::Status ArmPlan(Call& call, const v1::ArmPlanRequest& request, v1::ArmedPlan* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_ASSIGN_OR_RETURN(auto plan_id, ConvertHandle(request.plan_id(), "plan_id"));
  GEMMD_ASSIGN_OR_RETURN(auto options, ConvertOptions(request));
  GEMMD_ASSIGN_OR_RETURN(auto rebind, ConvertRebindings(request.rebind()));
  GEMMD_ASSIGN_OR_RETURN(auto region, RegionOf(*use));
  auto armed = region->Arm(std::move(use), plan_id, std::move(rebind), options);
  if (!armed.ok()) {
    call.state().CountRejection(call.tenant(), armed.status());
    return armed.status();
  }
  response->set_slot(armed->slot);
  response->set_device(armed->plan->device->name());
  response->set_estimated_seconds(armed->plan->program.Get()->estimated_seconds());
  response->set_done_by_stream(armed->done_by_stream);
  return absl::OkStatus();
}

absl::Status DisarmPlan(Call& call, const v1::DisarmPlanRequest& request, v1::DisarmPlanResponse*) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  if (request.slots().empty() || request.slots_size() > static_cast<int>(GEMMD_ARMED_MAX_SLOTS)) {
    return absl::InvalidArgumentError(absl::StrCat("slots has ", request.slots_size(),
                                                   " entries; name 1 to ", GEMMD_ARMED_MAX_SLOTS));
  }
  GEMMD_ASSIGN_OR_RETURN(auto region, RegionOf(*use));
  return region->Disarm({request.slots().begin(), request.slots().end()});
}

absl::Status ListArmed(Call& call, const v1::ListArmedRequest& request,
                       v1::ListArmedResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  const auto region = use->armed();
  if (region == nullptr) return absl::OkStatus();
  for (const ArmedRegion::SlotInfo& info : region->List()) Fill(info, response->add_slots());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeArmedService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::ArmedService>>(context);
  rpcs->Serve(GetArmedRegion);
  rpcs->Serve(ArmPlan);
  rpcs->Serve(DisarmPlan);
  rpcs->Serve(ListArmed);
  return rpcs;
}

}  // namespace gemmd::server
