#include "server/engine/scheduling/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::Op;

// Of an op that no device can do as a whole, in a program whose other ops run elsewhere.
absl::Status OtherDeviceOfOp(size_t index, const Op& op, kernels::Access access, const Device& home,
                             const Device& device) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "op ", index, " (", Text(kernels::Name(op)), ") ",
          access == kernels::Access::kWrite ? "writes" : "reads", " a buffer on ", home.name(),
          ", and runs on ", device.name(),
          ", where it writes; an op runs on one device: put a Copy ",
          access == kernels::Access::kWrite ? "op behind it, whose src" : "op before it, whose dst",
          " is a buffer on ", device.name())),
      reason::kOtherDevice);
}

// Inline data of a client goes through memory that is shared with one device.
absl::Status CheckTarget(size_t index, const Op& op, const Device& device, const SlotTable& slots) {
  const auto* copy = std::get_if<kernels::CopyOp>(&op);
  if (copy == nullptr) return absl::OkStatus();
  const Buffer& dst = *slots.slot(copy->dst.slot).ref.buffer;
  const Device& source = slots.slot(copy->src.slot).ref.buffer->device();
  if (dst.spec().kind != kernels::MemoryKind::kHostShared || &source == &device) {
    return absl::OkStatus();
  }
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        "op ", index, " (copy) writes memory that ", device.name(),
                        " shares with the host, and reads a buffer on ", source.name(),
                        "; name memory that ", source.name(), " shares, or Read into the reply")),
                    reason::kOtherDevice);
}

struct Home {
  Device* device = nullptr;
  bool writes = false;
};

// The device that an op writes on, and for one that only reads where it reads. A matmul whose
// operands all lie on one device runs there, wherever its result goes: stored across, it travels
// while it is computed.
Home HomeOf(const Op& op, const SlotTable& slots) {
  Device* read = nullptr;
  Device* written = nullptr;
  bool one_side = std::holds_alternative<kernels::MatmulOp>(op);
  kernels::ForEachTensor(op, [&](const kernels::TensorRef& tensor, kernels::Access access) {
    Device* const device = &slots.slot(tensor.slot).ref.buffer->device();
    Device*& first = access == kernels::Access::kWrite ? written : read;
    if (first == nullptr) first = device;
    one_side &= first == device;
  });
  if (written == nullptr) return {read, false};
  return {one_side && read != nullptr ? read : written, true};
}

// That of the first op that writes; of the first op when none does.
Device& DeviceOf(absl::Span<const Op> ops, const SlotTable& slots) {
  for (const Op& op : ops) {
    if (const Home home = HomeOf(op, slots); home.writes) return *home.device;
  }
  return *HomeOf(ops.front(), slots).device;
}

// Whether an op that runs elsewhere may name a tensor there.
bool Reaches(const Op& op, kernels::Access access) {
  return access == kernels::Access::kRead ? std::holds_alternative<kernels::CopyOp>(op)
                                          : std::holds_alternative<kernels::MatmulOp>(op);
}

absl::Status OtherDevice(size_t index, const Op& op, kernels::Access access, const Device& home,
                         const Device& device) {
  const std::string what =
      absl::StrCat("op ", index, " (", Text(kernels::Name(op)), ") ",
                   access == kernels::Access::kWrite ? "writes" : "reads", " a buffer on ",
                   home.name(), ", and the program runs on ", device.name(),
                   access == kernels::Access::kWrite ? ", where it writes first" : "",
                   "; a program runs on one device: ");
  return WithReason(
      absl::InvalidArgumentError(
          access == kernels::Access::kWrite
              ? absl::StrCat(what, "send what writes on ", home.name(), " as a program of its own")
              : absl::StrCat(what, "put a Copy op before it, whose dst is a buffer on ",
                             device.name())),
      reason::kOtherDevice);
}

}  // namespace

absl::StatusOr<Placement> Place(absl::Span<const Op> ops, const SlotTable& slots) {
  Placement placement{.device = &DeviceOf(ops, slots)};
  absl::Status status;
  for (size_t i = 0; i < ops.size() && status.ok(); ++i) {
    kernels::ForEachTensor(ops[i], [&](const kernels::TensorRef& tensor, kernels::Access access) {
      const Buffer& buffer = *slots.slot(tensor.slot).ref.buffer;
      if (&buffer.device() == placement.device || !status.ok()) return;
      status = Reaches(ops[i], access)
                   ? AddPeer(*placement.device, buffer, placement.peers)
                   : OtherDevice(i, ops[i], access, buffer.device(), *placement.device);
    });
  }
  if (!status.ok()) return status;
  return placement;
}

bool IsSplit(absl::Span<const Op> ops, const SlotTable& slots) {
  const Device* const first = HomeOf(ops.front(), slots).device;
  return std::any_of(ops.begin(), ops.end(),
                     [&](const Op& op) { return HomeOf(op, slots).device != first; });
}

absl::StatusOr<Placement> PlaceOne(const Op& op, size_t index, const SlotTable& slots) {
  Placement placement{.device = HomeOf(op, slots).device};
  absl::Status status = CheckTarget(index, op, *placement.device, slots);
  kernels::ForEachTensor(op, [&](const kernels::TensorRef& tensor, kernels::Access access) {
    const Buffer& buffer = *slots.slot(tensor.slot).ref.buffer;
    if (&buffer.device() == placement.device || !status.ok()) return;
    status = Reaches(op, access)
                 ? AddPeer(*placement.device, buffer, placement.peers)
                 : OtherDeviceOfOp(index, op, access, buffer.device(), *placement.device);
  });
  if (!status.ok()) return status;
  return placement;
}

absl::Status AddPeer(Device& device, const Buffer& buffer, Peers& peers) {
  const kernels::Backend& home = buffer.device().backend();
  // Only the GPU that it was mapped for reaches another process's memory.
  if (buffer.spec().kind == kernels::MemoryKind::kDeviceImported) {
    return WithReason(
        absl::UnimplementedError(absl::StrCat(
            device.name(), " cannot reach memory that was imported on ", home.info().name,
            "; copy it into a buffer of ", home.info().name, " first")),
        reason::kOtherDevice);
  }
  if (std::find(peers.begin(), peers.end(), &home) != peers.end()) return absl::OkStatus();
  GEMMD_RETURN_IF_ERROR(home.health());
  if (absl::Status reach = device.backend().CanReach(home); !reach.ok()) {
    return absl::IsUnimplemented(reach) ? WithReason(reach, reason::kOtherDevice) : reach;
  }
  peers.push_back(&home);
  return absl::OkStatus();
}

}  // namespace gemmd::server
