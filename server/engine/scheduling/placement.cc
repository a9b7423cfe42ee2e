#include "server/engine/scheduling/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

using kernels::Access;
using kernels::Op;

// Of an op that no device can do as a whole, in a program whose other ops run elsewhere.
absl::Status OtherDeviceOfOp(size_t index, const Op& op, Access access, const Device& home,
                             const Device& device) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "op ", index, " (", Text(kernels::Name(op)), ") ",
          access == Access::kWrite ? "writes" : "reads", " a buffer on ", home.name(),
          ", and runs on ", device.name(),
          ", where it writes; an op runs on one device: put a Copy ",
          access == Access::kWrite ? "op behind it, whose src" : "op before it, whose dst",
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

// That of what is written first; of what is read when nothing is written.
Device& DeviceOf(absl::Span<const Op> ops, const SlotTable& slots) {
  Device* read = nullptr;
  Device* written = nullptr;
  for (const Op& op : ops) {
    kernels::ForEachTensor(op, [&](const kernels::TensorRef& tensor, Access access) {
      Device*& first = access == Access::kWrite ? written : read;
      if (first == nullptr) first = &slots.slot(tensor.slot).ref.buffer->device();
    });
    if (written != nullptr) break;
  }
  return written != nullptr ? *written : *read;
}

absl::Status OtherDevice(size_t index, const Op& op, Access access, const Device& home,
                         const Device& device) {
  const std::string what =
      absl::StrCat("op ", index, " (", Text(kernels::Name(op)), ") ",
                   access == Access::kWrite ? "writes" : "reads", " a buffer on ", home.name(),
                   ", and the program runs on ", device.name(),
                   access == Access::kWrite ? ", where it writes first" : "",
                   "; a program runs on one device: ");
  return WithReason(
      absl::InvalidArgumentError(
          access == Access::kWrite
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
    const bool copies = std::holds_alternative<kernels::CopyOp>(ops[i]);
    kernels::ForEachTensor(ops[i], [&](const kernels::TensorRef& tensor, Access access) {
      const Buffer& buffer = *slots.slot(tensor.slot).ref.buffer;
      if (&buffer.device() == placement.device || !status.ok()) return;
      status = copies && access == Access::kRead
                   ? AddSource(*placement.device, buffer, placement.sources)
                   : OtherDevice(i, ops[i], access, buffer.device(), *placement.device);
    });
  }
  if (!status.ok()) return status;
  return placement;
}

bool IsSplit(absl::Span<const Op> ops, const SlotTable& slots) {
  const Device* const first = &DeviceOf(ops.subspan(0, 1), slots);
  return std::any_of(ops.begin(), ops.end(), [&](const Op& op) {
    return &DeviceOf({&op, 1}, slots) != first;
  });
}

absl::StatusOr<Placement> PlaceOne(const Op& op, size_t index, const SlotTable& slots) {
  Placement placement{.device = &DeviceOf({&op, 1}, slots)};
  absl::Status status = CheckTarget(index, op, *placement.device, slots);
  const bool copies = std::holds_alternative<kernels::CopyOp>(op);
  kernels::ForEachTensor(op, [&](const kernels::TensorRef& tensor, Access access) {
    const Buffer& buffer = *slots.slot(tensor.slot).ref.buffer;
    if (&buffer.device() == placement.device || !status.ok()) return;
    status = copies && access == Access::kRead
                 ? AddSource(*placement.device, buffer, placement.sources)
                 : OtherDeviceOfOp(index, op, access, buffer.device(), *placement.device);
  });
  if (!status.ok()) return status;
  return placement;
}

absl::Status AddSource(Device& device, const Buffer& buffer, Sources& sources) {
  const kernels::Backend& home = buffer.device().backend();
  // Only the GPU that it was mapped for reaches another process's memory.
  if (buffer.spec().kind == kernels::MemoryKind::kDeviceImported) {
    return WithReason(
        absl::UnimplementedError(absl::StrCat(
            "a Copy op on ", device.name(), " cannot read memory that was imported on ",
            home.info().name, "; copy it into a buffer of ", home.info().name, " first")),
        reason::kOtherDevice);
  }
  if (std::find(sources.begin(), sources.end(), &home) != sources.end()) return absl::OkStatus();
  if (absl::Status fault = home.health(); !fault.ok()) return fault;
  if (absl::Status readable = device.backend().CanRead(home); !readable.ok()) {
    return absl::IsUnimplemented(readable) ? WithReason(readable, reason::kOtherDevice) : readable;
  }
  sources.push_back(&home);
  return absl::OkStatus();
}

}  // namespace gemmd::server
