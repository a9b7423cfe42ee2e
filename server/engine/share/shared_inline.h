// SharedInline: a program's inline data in memory that its client and the server share. Each Write
// becomes a Copy from there and each Read a Copy to there, which a device does without staging; the
// report keeps the names of the caller's ops.

#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"
#include "server/engine/sessions/bound_buffers.h"
#include "server/engine/sessions/buffer.h"
#include "server/engine/sessions/handle.h"
#include "server/engine/sessions/kept_program.h"

namespace gemmd::server {

using OpNames = std::shared_ptr<const std::vector<std::string_view>>;
std::shared_ptr<std::vector<std::string_view>> NamesOf(absl::Span<const kernels::Op> ops);

// A place in a buffer. As many bytes as the op that it is for moves.
struct SharedBytes {
  Handle buffer;
  int64_t offset_bytes = 0;
};

// OK when inline data may lie in the buffer at `offset_bytes`: it is host-shared, the data is
// aligned and, where `written`, the buffer may be written. Whether it is long enough is not asked.
absl::Status CheckShared(const BufferRef& ref, int64_t offset_bytes, int element_bytes,
                         bool written);

// A plan's. Immutable.
struct SharedInline {
  struct Move {
    bool is_read;  // that writes the shared memory
    int element_bytes;
    int64_t bytes;
  };
  std::vector<Move> moves;  // Writes and Reads, in order
  KeptProgram program;      // slot i of move i stands behind the plan's
  OpNames names;
};

// `ops` with a Copy from or to slot `first_slot` + i in the place of the i-th Write or Read, whose
// bytes begin where the slot does. Nothing in `moves` when there are none.
struct LoweredInline {
  std::vector<kernels::Op> ops;
  std::vector<SharedInline::Move> moves;
};
LoweredInline LowerInline(absl::Span<const kernels::Op> ops, int first_slot);

// The plan's buffers, and behind them one for each move: `refs` are what `places` name.
// INVALID_ARGUMENT, FAILED_PRECONDITION for places that cannot serve.
absl::StatusOr<std::shared_ptr<const BoundBuffers>> BindShared(const SharedInline& shared,
                                                               const BoundBuffers& plans,
                                                               const Device& device,
                                                               absl::Span<const SharedBytes> places,
                                                               absl::Span<const BufferRef> refs);

}  // namespace gemmd::server
