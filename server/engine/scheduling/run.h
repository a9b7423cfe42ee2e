// From resolved ops to an answer: compile them (or take a plan's program), bind memory, hand the
// job to the device's lane.
//
//   SlotTable slots(*use);  ops = ...;                      // service/convert fills both
//   StatusOr<RunRequest> run = CompileRun(std::move(use), ops, slots, inputs);
//   RunTicket ticket = Run(*std::move(run), [](std::shared_ptr<const Outcome> outcome, bool)
//   {...});

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "server/engine/scheduling/device.h"
#include "server/engine/sessions/recent_bindings.h"
#include "server/engine/sessions/session.h"
#include "server/engine/share/shared_inline.h"

namespace gemmd::server {

class SplitProgram;
class SplitRun;

// The distinct buffers that a program's tensors name, in order of first mention. A slot is an index
// into it.
class SlotTable {
 public:
  struct Slot {
    Handle handle;
    BufferRef ref;
  };
  explicit SlotTable(Session& session) : session_(session) {}

  // The slot of a buffer of the session. NOT_FOUND for any other handle.
  absl::StatusOr<int> Resolve(const Handle& handle);
  const Slot& slot(int index) const { return slots_[index]; }
  int size() const { return static_cast<int>(slots_.size()); }

 private:
  // Beyond so many they are found by hash: tables of a model's experts name thousands.
  static constexpr int kFewSlots = 32;
  int Find(const Handle& handle) const;  // -1: it has none
  int Find(const Buffer& buffer) const;  // likewise
  void Add(const Handle& handle, BufferRef ref);

  Session& session_;
  absl::InlinedVector<Slot, 8> slots_;
  absl::flat_hash_map<Handle, int> by_handle_;         // once there are more
  absl::flat_hash_map<const Buffer*, int> by_buffer_;  // likewise
};

using Inputs = std::vector<kernels::HostBytes>;      // data of the Write ops, in order
std::vector<int64_t> SizesOf(const Inputs& inputs);  // in bytes

// Everything a job needs but who answers it.
struct RunRequest {
  SessionUse use;
  Device* device = nullptr;
  std::shared_ptr<const kernels::Program> program;
  // The same when it is split; `device` is then its first op's, and `peers` are its parts'.
  std::shared_ptr<const SplitProgram> split;
  uint64_t tuning = 0;  // Plan::tuning, of what was compiled just now
  std::shared_ptr<const BoundBuffers> buffers;
  Peers peers;                  // other devices whose memory it reads or writes
  Inputs inputs;                // what they point at is valid until the answer
  bool inputs_charged = false;  // the tenant pays for them elsewhere
  std::vector<int64_t> output_bytes;
  int64_t shared_in_bytes = 0;   // copied by this run from HOST_SHARED buffers to DEVICE ones
  int64_t shared_out_bytes = 0;  // and the other way
  bool only_transfers = false;   // it does nothing else
  OpNames op_names;              // Outcome::op_names
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<Chain> chain;
  int64_t chain_position = 0;
  bool caller_waits = false;  // the thread that runs it has nothing else to do meanwhile
  OpId op_id;
  std::shared_ptr<const Plan> plan;     // null for one-off programs; keeps default inputs alive
  std::shared_ptr<const void> message;  // keeps other inputs alive; null when others do
  int64_t message_bytes = 0;            // of host memory, that `message` takes beside them

  // Whether one lane keeps it in order with others of that device.
  bool on_one_device() const { return peers.empty() && split == nullptr; }
};

// Checks the tenant's limits, every op, and where the program runs (placement.h); then compiles.
absl::StatusOr<RunRequest> CompileRun(SessionUse use, absl::Span<const kernels::Op> ops,
                                      const SlotTable& slots, Inputs inputs);

// The same checks, and keeps the result. `inputs` become the plan's defaults.
absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(Session& session,
                                                        absl::Span<const kernels::Op> ops,
                                                        const SlotTable& slots,
                                                        const Inputs& inputs, std::string label);

// By slot, the handle of the buffer to run on: the plan's own or the first that is to replace it.
// They point into what is given. INVALID_ARGUMENT for a change to what is none of the plan's.
absl::StatusOr<std::vector<const Handle*>> HandlesOf(const Plan& plan,
                                                     absl::Span<const Rebinding> rebind);

// A run of a plan: its buffers, or those put in their place, checked for device, size, writability
// and aliasing. Inputs empty: the defaults; `plan` keeps them alive. With `inline_at`, one for each
// Write and Read, the inline data lies there and `inputs` is empty.
absl::StatusOr<RunRequest> BindPlan(SessionUse use, std::shared_ptr<const Plan> plan,
                                    absl::Span<const Rebinding> rebind, Inputs inputs,
                                    absl::Span<const SharedBytes> inline_at = {});

// A run that CompileRun prepared, as a plan to run again: its own buffers and no others, with no
// default inputs. Null when its runs are not all alike: it reads another device, or moves shared
// memory.
std::shared_ptr<const Plan> PlanOf(const RunRequest& run, absl::Span<const kernels::Op> ops,
                                   const SlotTable& slots);

// A run of such a plan, with as many bytes of each input as it was made with. What may have changed
// since is checked again: the buffers, the tenant's limits. `use` and `inputs` are taken when it is
// OK.
absl::StatusOr<RunRequest> RunAgain(SessionUse& use, const Plan& plan, Inputs& inputs);

// A way to cancel a run that has not started. Empty when there is nothing to cancel any more.
struct RunTicket {
  std::shared_ptr<Job> job;
  Lane* lane = nullptr;
  std::shared_ptr<SplitRun> split;  // in the place of both
  void Cancel(const absl::Status& status) const;
};

// Runs it, or answers from the session's replay cache. `done` runs exactly once, perhaps before
// this returns; an error of any kind is in the outcome's status.
RunTicket Run(RunRequest request, OutcomeDone done);

}  // namespace gemmd::server
