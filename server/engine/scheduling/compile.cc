// The part of run.h that makes programs: slots for buffers, checks, placement, compilation.

#include <algorithm>

#include "server/engine/reason.h"
#include "server/engine/scheduling/placement.h"
#include "server/engine/scheduling/program_limits.h"
#include "server/engine/scheduling/run.h"
#include "server/engine/scheduling/split_program.h"
#include "server/engine/sessions/host_bytes.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::Op;

constexpr int64_t kTooMany = -1;  // CheckSize refuses it

// Of each Read. Nothing has been validated yet: of an extent below 0 ValidateOps will tell, so it
// counts as 0 here.
std::vector<int64_t> OutputBytes(absl::Span<const Op> ops) {
  std::vector<int64_t> bytes;
  for (const Op& op : ops) {
    if (const auto* read = std::get_if<kernels::ReadOp>(&op)) {
      const auto elements = kernels::NumElements(read->src.shape);
      const bool countable = elements.ok() && *elements < (int64_t{1} << 60);
      bytes.push_back(countable
                          ? std::max<int64_t>(*elements, 0) * kernels::SizeBytes(read->src.dtype)
                          : kTooMany);
    }
  }
  return bytes;
}

// What Copy ops carry between memory that clients map and the device's own: transfers, as uploads
// are.
void CountShared(absl::Span<const Op> ops, absl::Span<const BufferLease> leases, RunRequest& run) {
  const auto is_shared = [&](const kernels::TensorRef& tensor) {
    return leases[tensor.slot]->spec().kind == kernels::MemoryKind::kHostShared;
  };
  run.only_transfers = true;
  for (const Op& op : ops) {
    const auto* copy = std::get_if<kernels::CopyOp>(&op);
    if (copy == nullptr || is_shared(copy->src) == is_shared(copy->dst)) {
      run.only_transfers = false;
      continue;
    }
    const int64_t bytes =
        *kernels::NumElements(copy->src.shape) * kernels::SizeBytes(copy->src.dtype);
    (is_shared(copy->src) ? run.shared_in_bytes : run.shared_out_bytes) += bytes;
  }
}

// A run of the ops that has its program and where that goes, and no memory yet.
absl::StatusOr<RunRequest> Compile(Session& session, absl::Span<const Op> ops,
                                   const SlotTable& slots, const Inputs& inputs) {
  RunRequest compiled;
  compiled.output_bytes = OutputBytes(ops);
  const std::vector<int64_t> input_bytes = SizesOf(inputs);
  GEMMD_RETURN_IF_ERROR(
      CheckSize(session.tenant(), ops.size(), input_bytes, compiled.output_bytes));
  absl::InlinedVector<kernels::SlotInfo, 8> infos;
  for (int i = 0; i < slots.size(); ++i) {
    const BufferRef& ref = slots.slot(i).ref;
    infos.push_back({.size_bytes = ref.buffer->spec().size_bytes, .read_only = ref.read_only()});
  }
  if (absl::Status valid = kernels::ValidateOps(
          ops, infos, {.input_bytes = input_bytes, .output_bytes = compiled.output_bytes});
      !valid.ok()) {
    return absl::IsFailedPrecondition(valid) ? WithReason(valid, reason::kReadOnly) : valid;
  }
  absl::StatusOr<std::shared_ptr<const kernels::Program>> program;
  std::string where;
  if (IsSplit(ops, slots)) {
    GEMMD_ASSIGN_OR_RETURN(auto split, SplitProgram::Compile(session.tenant(), ops, slots));
    compiled.split = split;
    compiled.device = split->parts().front().device;
    where = compiled.split->DeviceNames();
    program = std::move(split);
  } else {
    GEMMD_ASSIGN_OR_RETURN(auto placement, Place(ops, slots));
    compiled.device = placement.device;
    compiled.peers = std::move(placement.peers);
    compiled.tuning = compiled.device->tuning();
    where = compiled.device->name();
    program = compiled.device->backend().Compile(ops);
  }
  if (!program.ok()) return program.status();
  GEMMD_ASSIGN_OR_RETURN(compiled.program, ChargedProgram(session.tenant(), *std::move(program)));
  GEMMD_RETURN_IF_ERROR(CheckTime(session.tenant(), where, compiled.program->estimated_seconds()));
  return compiled;
}

// What runs in the plan's place when its inline data lies in shared memory; null without any.
absl::StatusOr<std::shared_ptr<const SharedInline>> CompileShared(Tenant& tenant, Device& device,
                                                                  absl::Span<const Op> ops,
                                                                  int first_slot) {
  LoweredInline lowered = LowerInline(ops, first_slot);
  if (lowered.moves.empty()) return std::shared_ptr<const SharedInline>();
  GEMMD_ASSIGN_OR_RETURN(auto program, device.backend().Compile(lowered.ops));
  GEMMD_ASSIGN_OR_RETURN(auto charged, ChargedProgram(tenant, std::move(program)));
  return std::make_shared<const SharedInline>(
      SharedInline{std::move(lowered.moves),
                   KeepProgram(tenant, device, lowered.ops, std::move(charged)), NamesOf(ops)});
}

// What the plan's ops do to each slot: `plan` has its device.
void AddSlots(absl::Span<const Op> ops, const SlotTable& slots, Plan& plan) {
  for (int i = 0; i < slots.size(); ++i) {
    const SlotTable::Slot& slot = slots.slot(i);
    const Device& home = slot.ref.buffer->device();
    const bool split = plan.split != nullptr;
    plan.slots.push_back({.handle = slot.handle,
                          .foreign = !split && &home != plan.device,
                          .home = split ? &home : nullptr});
    plan.slot_of.emplace(slot.handle, i);
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    kernels::ForEachTensor(ops[i], [&](const kernels::TensorRef& tensor, kernels::Access access) {
      Plan::Slot& slot = plan.slots[tensor.slot];
      slot.reached_across |= plan.split != nullptr && &plan.split->device_of(i) != slot.home;
      slot.reach = std::max(slot.reach, kernels::TouchedBytes(tensor)->end);
      slot.written |= access == kernels::Access::kWrite;
      const bool has_nan =
          tensor.dtype != kernels::DType::kI8 && tensor.dtype != kernels::DType::kI32;
      if (access == kernels::Access::kWrite && has_nan) {
        plan.float_outputs.push_back(tensor);
      }
    });
  }
}

}  // namespace

std::vector<int64_t> SizesOf(const Inputs& inputs) {
  std::vector<int64_t> sizes;
  sizes.reserve(inputs.size());
  for (const auto& input : inputs) sizes.push_back(static_cast<int64_t>(input.size()));
  return sizes;
}

int SlotTable::Find(const Handle& handle) const {
  if (size() > kFewSlots) {
    const auto found = by_handle_.find(handle);
    return found == by_handle_.end() ? -1 : found->second;
  }
  for (int i = 0; i < size(); ++i) {
    if (slots_[i].handle == handle) return i;
  }
  return -1;
}

int SlotTable::Find(const Buffer& buffer) const {
  if (size() > kFewSlots) {
    const auto found = by_buffer_.find(&buffer);
    return found == by_buffer_.end() ? -1 : found->second;
  }
  for (int i = 0; i < size(); ++i) {
    if (slots_[i].ref.buffer.get() == &buffer) return i;
  }
  return -1;
}

void SlotTable::Add(const Handle& handle, BufferRef ref) {
  slots_.push_back({handle, std::move(ref)});
  if (size() <= kFewSlots) return;
  for (int i = static_cast<int>(by_handle_.size()); i < size(); ++i) {
    by_handle_.emplace(slots_[i].handle, i);
    by_buffer_.emplace(slots_[i].ref.buffer.get(), i);
  }
}

absl::StatusOr<int> SlotTable::Resolve(const Handle& handle) {
  if (const int known = Find(handle); known >= 0) return known;
  GEMMD_ASSIGN_OR_RETURN(BufferRef ref, session_.FindBuffer(handle));
  // Two handles of one buffer (its owner's, and one found by name) are one slot: overlap is checked
  // within a slot.
  if (const int same = Find(*ref.buffer); same >= 0) return same;
  Add(handle, std::move(ref));
  return size() - 1;
}

absl::StatusOr<RunRequest> CompileRun(SessionUse use, absl::Span<const Op> ops,
                                      const SlotTable& slots, Inputs inputs) {
  auto request = Compile(*use, ops, slots, inputs);
  if (!request.ok()) return request;
  request->use = std::move(use);
  request->inputs = std::move(inputs);
  auto buffers = std::make_shared<BoundBuffers>();
  buffers->Reserve(slots.size());
  for (int i = 0; i < slots.size(); ++i) buffers->Add(slots.slot(i).ref.buffer);
  CountShared(ops, buffers->leases, *request);
  request->buffers = std::move(buffers);
  return request;
}

absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(Session& session, absl::Span<const Op> ops,
                                                        const SlotTable& slots,
                                                        const Inputs& inputs, std::string label) {
  GEMMD_ASSIGN_OR_RETURN(Charge charge, session.tenant().TakePlan());
  int64_t host_bytes = slots.size() * kSlotBytes;
  for (const auto& input : inputs) host_bytes += static_cast<int64_t>(input.size());
  GEMMD_ASSIGN_OR_RETURN(Charge host_charge, session.tenant().TakeHostBytes(host_bytes));
  GEMMD_ASSIGN_OR_RETURN(auto compiled, Compile(session, ops, slots, inputs));
  auto plan = std::make_shared<Plan>();
  plan->label = std::move(label);
  plan->device = compiled.device;
  if (compiled.split != nullptr) {  // its inline data comes in messages
    plan->split = std::move(compiled.split);
    plan->program = KeptProgram(std::move(compiled.program));
  } else {
    GEMMD_ASSIGN_OR_RETURN(plan->shared_inline,
                           CompileShared(session.tenant(), *compiled.device, ops, slots.size()));
    plan->program = KeepProgram(session.tenant(), *plan->device, ops, std::move(compiled.program));
  }
  plan->output_bytes = std::move(compiled.output_bytes);
  plan->charge = std::move(charge);
  plan->host_charge = std::move(host_charge);
  for (const auto& input : inputs) {
    input.CopyTo(
        reinterpret_cast<std::byte*>(plan->inputs.emplace_back(input.size(), '\0').data()));
  }
  AddSlots(ops, slots, *plan);
  return plan;
}

std::shared_ptr<const Plan> PlanOf(const RunRequest& run, absl::Span<const Op> ops,
                                   const SlotTable& slots) {
  if (!run.on_one_device() || run.op_names != nullptr) return nullptr;
  if (run.shared_in_bytes != 0 || run.shared_out_bytes != 0) return nullptr;
  auto plan = std::make_shared<Plan>();
  plan->device = run.device;
  plan->program = KeptProgram(run.program);
  plan->tuning = run.tuning;
  plan->output_bytes = run.output_bytes;
  AddSlots(ops, slots, *plan);
  return plan;
}

}  // namespace gemmd::server
