// Which ops of a program may work while the kernels in front of them still do.
//
// A kernel that was launched under the end of another (programmatic dependent launch) waits for
// that one before it touches memory, unless the two have no memory in common that either of them
// writes. Then it works at once, and waits at its end, so that whatever comes behind finds both
// done.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

struct Touched {
  int slot = 0;
  ByteRange bytes;
  bool written = false;
};

struct OpTouches {
  std::vector<Touched> all;
  // Whether its kernel was launched under the end of the one in front, and can go to work before
  // that has ended.
  bool may_overlap = false;
};

// Whether one writes what the other one touches, on this memory.
bool Conflict(const OpTouches& a, const OpTouches& b, SlotAddresses slots);

// The tensors of a validated op.
absl::StatusOr<std::vector<Touched>> TouchesOf(const Op& op);

// For ops that run in this order on this memory: those that need not wait for the ones in front.
// By address, since memory that a client hands over twice is two slots.
std::vector<bool> IndependentOps(absl::Span<const OpTouches> ops, SlotAddresses slots);

}  // namespace gemmd::kernels::cuda
