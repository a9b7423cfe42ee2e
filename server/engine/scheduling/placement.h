// Where a program runs: on the device of the buffers it writes; one that writes on several is split
// (split_program.h), op by op. A buffer of another device may be what Copy ops read, and the result
// of a matmul whose operands lie on one device, where it then runs. Whatever else has to compute on
// it copies it over first.

#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"
#include "server/engine/scheduling/device.h"
#include "server/engine/scheduling/run.h"

namespace gemmd::server {

struct Placement {
  Device* device = nullptr;
  Peers peers;
};

// Of ops that are valid and name at least one tensor. INVALID_ARGUMENT, with the remedy, for what
// does not run on one device; else as AddPeer.
absl::StatusOr<Placement> Place(absl::Span<const kernels::Op> ops, const SlotTable& slots);

// Whether the ops write on several devices, or on one and read into the reply from another.
bool IsSplit(absl::Span<const kernels::Op> ops, const SlotTable& slots);
// As Place, of op `index` of a program that is split.
absl::StatusOr<Placement> PlaceOne(const kernels::Op& op, size_t index, const SlotTable& slots);

// Adds the device of `buffer`, which is not `device`, to those whose memory a program on `device`
// reads or writes. UNIMPLEMENTED when it cannot reach the buffer, UNAVAILABLE when the buffer's
// device is fenced.
absl::Status AddPeer(Device& device, const Buffer& buffer, Peers& peers);

}  // namespace gemmd::server
