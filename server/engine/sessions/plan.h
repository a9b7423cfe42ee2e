// Plan: a program that is kept and run again, on the buffers it was made with or on others.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/backend.h"
#include "server/engine/sessions/buffer.h"
#include "server/engine/sessions/handle.h"
#include "server/engine/sessions/kept_program.h"
#include "server/engine/sessions/tenant.h"
#include "server/engine/share/shared_inline.h"

namespace gemmd::server {

class SplitProgram;

// Immutable; shared by the session that names it and by runs under way.
struct Plan {
  struct Slot {
    Handle handle;  // the buffer it was made with; need not exist any more if a run rebinds it
    int64_t reach =
        0;  // bytes of the buffer that the plan's views touch: a rebound one needs as many
    bool written = false;
    // On another device (placement.h): so may be what takes its place.
    bool foreign = false;
    // Of a split plan: what takes its place is there, too. Null in others.
    const Device* home = nullptr;
    bool reached_across = false;  // of a split plan: an op of another device reads or writes it
  };
  std::string label;
  Device* device = nullptr;                   // its first op's when it is split
  std::shared_ptr<const SplitProgram> split;  // `program` when it runs on several devices
  KeptProgram program;
  uint64_t tuning = 0;  // Device::tuning() before it was compiled
  std::vector<Slot> slots;
  absl::flat_hash_map<Handle, int> slot_of;       // by the handle of each
  std::vector<std::string> inputs;                // default data of the Write ops
  std::vector<int64_t> output_bytes;              // of the Read ops
  std::vector<kernels::TensorRef> float_outputs;  // that it writes and that can hold NaN
  // What runs when the inline data lies in shared memory; nothing without Write and Read ops.
  std::shared_ptr<const SharedInline> shared_inline;
  Charge charge;
  Charge host_charge;  // of `inputs` and `slots`; the program has its own
};

}  // namespace gemmd::server
