#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/placement.h"
#include "server/engine/reason.h"
#include "server/engine/run.h"

namespace gemmd::server {
namespace {

absl::Status CheckSlot(const Plan& plan, const Plan::Slot& slot, const BufferRef& ref,
                       const Handle& handle) {
  const Buffer& buffer = *ref.buffer;
  if (&buffer.device() != plan.device && !slot.foreign) {
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

// Two slots on one buffer would let an op read what it writes: refused when either is written.
absl::Status CheckAliases(const Plan& plan, absl::Span<const BufferLease> leases) {
  for (size_t i = 0; i < leases.size(); ++i) {
    for (size_t j = i + 1; j < leases.size(); ++j) {
      if (leases[i] == leases[j] && (plan.slots[i].written || plan.slots[j].written)) {
        return absl::InvalidArgumentError(
            absl::StrCat("one buffer stands in the place of buffers ",
                         Redacted(plan.slots[i].handle), "... and ", Redacted(plan.slots[j].handle),
                         "..., and the plan writes one of them; bind different buffers"));
      }
    }
  }
  return absl::OkStatus();
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

}  // namespace

absl::StatusOr<RunRequest> BindPlan(SessionUse use, std::shared_ptr<const Plan> plan,
                                    absl::Span<const Rebinding> rebind, Inputs inputs) {
  for (const Rebinding& change : rebind) {
    const bool known = std::any_of(plan->slots.begin(), plan->slots.end(),
                                   [&](const auto& slot) { return slot.handle == change.from; });
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("rebind: buffer ", Redacted(change.from), "... is not one of the plan's"));
    }
  }
  RunRequest request;
  for (const Plan::Slot& slot : plan->slots) {
    const auto change = std::find_if(rebind.begin(), rebind.end(),
                                     [&](const auto& r) { return r.from == slot.handle; });
    const Handle& handle = change == rebind.end() ? slot.handle : change->to;
    auto ref = use->FindBuffer(handle);
    if (!ref.ok()) return ref.status();
    if (absl::Status fits = CheckSlot(*plan, slot, *ref, handle); !fits.ok()) return fits;
    if (&ref->buffer->device() != plan->device) {
      absl::Status readable = AddSource(*plan->device, *ref->buffer, request.sources);
      if (!readable.ok()) return readable;
    }
    request.leases.push_back(ref->buffer);
  }
  if (absl::Status distinct = CheckAliases(*plan, request.leases); !distinct.ok()) return distinct;
  auto bound = BindInputs(*plan, std::move(inputs));
  if (!bound.ok()) return bound.status();
  request.inputs = *std::move(bound);
  request.device = plan->device;
  request.program = plan->program;
  request.output_bytes = plan->output_bytes;
  request.plan = std::move(plan);
  request.use = std::move(use);
  return request;
}

}  // namespace gemmd::server
