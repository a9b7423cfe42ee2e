// Job: one program on its way through a lane, with everything it needs to run and to answer.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/stop.h"
#include "server/engine/sessions/bound_buffers.h"
#include "server/engine/sessions/session_use.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

enum class Priority : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };
inline constexpr int kPriorities = 3;
std::string_view Name(Priority priority);  // "high", "normal", "low"

// Jobs of one Queue stream that stand or fall together: once the one at position p has failed,
// those after p are answered ABORTED instead of run. A batch with `resume` starts a new chain.
class Chain {
 public:
  void Fail(int64_t position);
  // ABORTED, naming the failed position, when one before `position` has failed.
  absl::Status Check(int64_t position) const;

 private:
  std::atomic<int64_t> failed_at_{INT64_MAX};
};

// Other devices whose memory a program's Copy ops read. They outlive every program.
using Peers = std::vector<const kernels::Backend*>;

struct JobResult {
  absl::Status status;
  kernels::LaunchResult launch;  // empty when it never ran
  double queue_seconds = 0;      // accepted to started
  double parts_seconds = 0;      // of a split program: device time of all its parts
  bool more_of_chain = false;    // the next program of its chain has ended and is answered next

  // Device time that it used, of all devices.
  double used_seconds() const { return parts_seconds > 0 ? parts_seconds : launch.device_seconds; }
};

class Lane;

// Shared by the lane and by whoever may want to cancel it; hence shared_ptr.
struct Job {
  using Done = absl::AnyInvocable<void(JobResult) &&>;

  std::shared_ptr<const kernels::Program> program;
  kernels::Bindings bindings;
  std::shared_ptr<const BoundBuffers> buffers;  // what `bindings` points into
  Peers peers;                                  // not launched once one of them has faulted
  SessionUse use;                               // keeps the session's end waiting
  Charge charge;                                // of the tenant's queued programs
  Charge time_charge;                           // of the tenant's queued device time
  Charge inline_charge;                         // of host memory, for what came with the program
  Tenant* tenant = nullptr;
  uint64_t session_key = 0;  // dense, never reused; what fairness within a tenant is counted by
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<Chain> chain;  // null outside a Queue stream
  int64_t chain_position = 0;
  bool armed = false;         // a ring brought it, not a call
  bool caller_waits = false;  // whoever submits it has nothing else to do until it is answered
  bool left = false;          // whoever submits it has other lanes' work: this lane's thread has it
  // Runs once it is launched, with no lock held; perhaps after `done`. Not when it never is. Null:
  // nobody asks.
  absl::AnyInvocable<void() &&> launched;
  // Runs exactly once, on any thread, with no lock held.
  Done done;

  // The lane's own.
  Lane* lane = nullptr;  // that launched it
  double estimate = 0;   // seconds, corrected by what programs of its size took lately
  absl::Time accepted;
  uint64_t traced_as = 0;  // its number in the timeline; 0 when nobody watched its launch
  kernels::Stop stop;      // of its run
  absl::Status stop_why;   // with which that was asked for; guarded by the lane's lock
  enum class State : uint8_t { kQueued, kLaunched, kAnswered } state = State::kQueued;
};

}  // namespace gemmd::server
