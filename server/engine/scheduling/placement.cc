#include "server/engine/scheduling/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

using kernels::Access;
using kernels::Op;

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
