#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/placement.h"
#include "server/engine/scheduling/program_limits.h"
#include "server/engine/scheduling/run.h"
#include "server/engine/sessions/host_bytes.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status CheckSlot(const Plan& plan, const Plan::Slot& slot, const BufferRef& ref,
                       const Handle& handle) {
  const Buffer& buffer = *ref.buffer;
  if (slot.home != nullptr && &buffer.device() != slot.home) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", Redacted(handle), "... is on ", buffer.device().name(),
                     ", and the plan, which runs on several devices, has the one in its place on ",
                     slot.home->name(), "; bind one of that device"));
  }
  if (slot.reached_across && buffer.spec().kind == kernels::MemoryKind::kDeviceImported) {
    return WithReason(
        absl::UnimplementedError(absl::StrCat(
            "buffer ", Redacted(handle), "... was imported on ", buffer.device().name(),
            ", and another device of the plan reaches it; copy it into a buffer of its own device "
            "first")),
        reason::kOtherDevice);
  }
  if (slot.home == nullptr && &buffer.device() != plan.device && !slot.foreign) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer ", Redacted(handle), "... is on ", buffer.device().name(), ", the plan runs on ",
        plan.device->name(), "; copy it there or make a plan for its device"));
  }
  if (buffer.spec().size_bytes < slot.reach) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", Redacted(handle), "... has ", buffer.spec().size_bytes,
                     " bytes, the plan's views of the buffer in its place reach to ", slot.reach,
                     "; bind one at least as large"));
  }
  if (slot.written && ref.read_only()) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("buffer ", Redacted(handle),
                                       "... is published and so read-only, and the plan writes it; "
                                       "bind another")),
                      reason::kReadOnly);
  }
  return absl::OkStatus();
}

// Two slots on one buffer would let an op read what it writes: refused when either is written. Of
// several such pairs the one with the first slot is named.
absl::Status CheckAliases(const Plan& plan, absl::Span<const BufferLease> leases) {
  absl::flat_hash_map<const Buffer*, size_t> first_of;
  first_of.reserve(leases.size());
  std::optional<std::pair<size_t, size_t>> alias;
  for (size_t i = 0; i < leases.size(); ++i) {
    const auto [it, fresh] = first_of.try_emplace(leases[i].get(), i);
    if (fresh || !(plan.slots[it->second].written || plan.slots[i].written)) continue;
    if (!alias || it->second < alias->first) alias = {it->second, i};
  }
  if (!alias) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "one buffer stands in the place of buffers ", Redacted(plan.slots[alias->first].handle),
      "... and ", Redacted(plan.slots[alias->second].handle),
      "..., and the plan writes one of them; bind different buffers"));
}

// Looks every buffer up and checks it, in the plan's slots.
absl::StatusOr<std::shared_ptr<BoundBuffers>> Bind(const Plan& plan,
                                                   absl::Span<const Handle* const> handles,
                                                   const Session::FoundBuffers& found,
                                                   Peers& peers) {
  auto buffers = std::make_shared<BoundBuffers>();
  buffers->Reserve(plan.slots.size());
  for (size_t i = 0; i < found.refs.size(); ++i) {
    const Plan::Slot& slot = plan.slots[i];
    const BufferRef& ref = found.refs[i];
    GEMMD_RETURN_IF_ERROR(CheckSlot(plan, slot, ref, *handles[i]));
    if (slot.foreign && &ref.buffer->device() != plan.device) {
      GEMMD_RETURN_IF_ERROR(AddPeer(*plan.device, *ref.buffer, peers));
    }
    if (slot.written) buffers->written.push_back(ref.buffer.get());
    buffers->Add(ref.buffer);
  }
  if (!found.status.ok()) return found.status;
  return buffers;
}

absl::StatusOr<std::shared_ptr<const BoundBuffers>> BindBuffers(
    Session& session, const std::shared_ptr<const Plan>& plan, absl::Span<const Rebinding> rebind,
    Peers& peers) {
  GEMMD_ASSIGN_OR_RETURN(auto handles, HandlesOf(*plan, rebind));
  const Session::FoundBuffers found = session.FindBuffers(handles);
  GEMMD_ASSIGN_OR_RETURN(auto bound, Bind(*plan, handles, found, peers));
  std::shared_ptr<const BoundBuffers> buffers = std::move(bound);
  GEMMD_RETURN_IF_ERROR(CheckAliases(*plan, buffers->leases));
  // Whether another device's memory can be reached is asked each time: it may be fenced since.
  if (plan->slots.size() >= RecentBindings::kFewestSlots && peers.empty()) {
    auto charge =
        session.tenant().TrySpareHostBytes(static_cast<int64_t>(plan->slots.size()) * kSlotBytes +
                                           static_cast<int64_t>(rebind.size()) * kRebindingBytes);
    if (!charge) return buffers;
    session.RememberBinding({.plan = plan,
                             .rebind = {rebind.begin(), rebind.end()},
                             .buffers = buffers,
                             .charge = *std::move(charge)},
                            found);
  }
  return buffers;
}

absl::StatusOr<Inputs> BindInputs(const Plan& plan, Inputs inputs) {
  if (inputs.empty()) {
    for (const std::string& data : plan.inputs) {
      inputs.push_back(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()), data.size()));
    }
    return inputs;
  }
  if (inputs.size() != plan.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the run has ", inputs.size(),
                                                   " inputs, the plan has ", plan.inputs.size(),
                                                   " Write ops; give one each or none"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].size() != plan.inputs[i].size()) {
      return absl::InvalidArgumentError(absl::StrCat("inputs[", i, "] has ", inputs[i].size(),
                                                     " bytes, the plan's Write op takes ",
                                                     plan.inputs[i].size()));
    }
  }
  return inputs;
}

// `request` has the plan's buffers; with the data in shared memory it runs another program on those
// and on that.
absl::Status ShareInline(Session& session, const Plan& plan, const Inputs& inputs,
                         absl::Span<const SharedBytes> inline_at, RunRequest& request) {
  const SharedInline* const shared = plan.shared_inline.get();
  const size_t moves = shared == nullptr ? 0 : shared->moves.size();
  if (!inputs.empty() || inline_at.size() != moves) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run has ", inputs.size(), " inputs and ", inline_at.size(),
        " places in inline_at, the plan has ", moves,
        " Write and Read ops; give one place for each of them and no inputs, or no places"));
  }
  std::vector<const Handle*> handles;
  for (const SharedBytes& place : inline_at) handles.push_back(&place.buffer);
  const Session::FoundBuffers found = session.FindBuffers(handles);
  if (!found.status.ok()) return found.status;
  GEMMD_ASSIGN_OR_RETURN(
      request.buffers, BindShared(*shared, *request.buffers, *plan.device, inline_at, found.refs));
  request.program = shared->program.Get();
  request.op_names = shared->names;
  for (const SharedInline::Move& move : shared->moves) {
    (move.is_read ? request.shared_out_bytes : request.shared_in_bytes) += move.bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<const Handle*>> HandlesOf(const Plan& plan,
                                                     absl::Span<const Rebinding> rebind) {
  std::vector<const Handle*> handles;
  handles.reserve(plan.slots.size());
  for (const Plan::Slot& slot : plan.slots) handles.push_back(&slot.handle);
  for (const Rebinding& change : rebind) {
    const auto slot = plan.slot_of.find(change.from);
    if (slot == plan.slot_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rebind: buffer ", Redacted(change.from), "... is not one of the plan's"));
    }
    const Handle*& handle = handles[slot->second];
    if (handle == &plan.slots[slot->second].handle) handle = &change.to;
  }
  return handles;
}

absl::StatusOr<RunRequest> BindPlan(SessionUse use, std::shared_ptr<const Plan> plan,
                                    absl::Span<const Rebinding> rebind, Inputs inputs,
                                    absl::Span<const SharedBytes> inline_at) {
  RunRequest request;
  if (plan->slots.size() >= RecentBindings::kFewestSlots) {
    request.buffers = use->FindBinding(plan, rebind);
  }
  // All that may have changed since what is remembered was checked.
  if (request.buffers == nullptr || !request.buffers->StillWritable()) {
    GEMMD_ASSIGN_OR_RETURN(request.buffers, BindBuffers(*use, plan, rebind, request.peers));
  }
  request.split = plan->split;
  if (inline_at.empty()) {
    request.inputs_charged = inputs.empty();  // the plan's own
    GEMMD_ASSIGN_OR_RETURN(request.inputs, BindInputs(*plan, std::move(inputs)));
    request.program = plan->program.Get();
    request.output_bytes = plan->output_bytes;
  } else if (absl::Status shared = ShareInline(*use, *plan, inputs, inline_at, request);
             !shared.ok()) {
    return shared;
  }
  request.device = plan->device;
  request.plan = std::move(plan);
  request.use = std::move(use);
  return request;
}

// No two slots have one buffer: they were told apart by it when the plan was made.
absl::StatusOr<RunRequest> RunAgain(SessionUse& use, const Plan& plan, Inputs& inputs) {
  const Tenant& tenant = use->tenant();
  std::shared_ptr<const kernels::Program> program = plan.program.Get();
  absl::Status within =
      CheckSize(tenant, program->steps().size(), SizesOf(inputs), plan.output_bytes);
  within.Update(CheckTime(tenant, plan.device->name(), program->estimated_seconds()));
  if (!within.ok()) return within;
  absl::InlinedVector<const Handle*, 8> handles;
  for (const Plan::Slot& slot : plan.slots) handles.push_back(&slot.handle);
  RunRequest request;
  GEMMD_ASSIGN_OR_RETURN(request.buffers,
                         Bind(plan, handles, use->FindBuffers(handles), request.peers));
  request.device = plan.device;
  request.program = std::move(program);
  request.output_bytes = plan.output_bytes;
  request.inputs = std::move(inputs);
  request.use = std::move(use);
  return request;
}

}  // namespace gemmd::server
