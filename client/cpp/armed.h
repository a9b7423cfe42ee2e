// An armed plan: a run without a call, for callers on the daemon's host. The plan and its buffers
// are put into a slot of memory that the session shares with the daemon; a word that is set there
// runs it.
//
//   absl::StatusOr<Armed> armed = session.Arm(plan);
//   armed->Ring();  // from the host: a store, and a wake-up if the daemon sleeps
//   absl::Status ran = armed->Wait();
//
//   absl::StatusOr<Armed> step = session.Arm(plan, {}, {.rung_by_stream = true});
//   step->RingOn(stream);                   // behind the kernels that wrote the operands
//   step->WaitOn(stream);                   // kernels behind it find the results; no host waits
//
// A captured graph may hold RingOn and WaitOn, and be replayed. Operands lie in kHostShared,
// kDeviceShared or imported buffers, which the caller fills where it has them mapped.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"
#include "client/cpp/types.h"

struct CUstream_st;  // what CUstream and cudaStream_t point to

namespace gemmd::client {

struct ArmOptions {
  Priority priority = Priority::kNormal;
  // Streams ring it: the daemon stays awake for a while after each run, since they cannot wake it.
  bool rung_by_stream = false;
  // From each ring; a run that cannot start in time fails. Infinite: none.
  absl::Duration deadline = absl::InfiniteDuration();
  CallOptions call = {};
};

// Of the last run that the daemon has seen the end of. A GPU may tell a waiting caller before that:
// its run comes a moment later.
struct ArmedReport {
  int64_t run = 0;  // since the plan was armed; 0: none was answered yet
  absl::Duration queued = absl::ZeroDuration();  // from the ring to the device's start
  absl::Duration device = absl::ZeroDuration();
  absl::Status status;
};

// Move-only. For one thread at a time, but Wait may be another's than Ring's. One run at a time: to
// have several under way, arm the plan several times. The destructor disarms, waiting 5 s at most;
// synchronise the streams that ring it before. A forked child is refused (FAILED_PRECONDITION,
// FORKED), and its copy disarms nothing.
class Armed {
 public:
  Armed();  // nothing armed
  ~Armed();
  Armed(Armed&&) noexcept;
  Armed& operator=(Armed&&) noexcept;

  int slot() const;  // -1: none
  const std::string& device() const;
  absl::Duration estimate() const;

  // FAILED_PRECONDITION while the last run has not been waited for, UNAVAILABLE once the daemon or
  // the session has ended.
  absl::Status Ring();
  // The run's error if it failed. DEADLINE_EXCEEDED leaves it under way: wait again.
  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration());
  bool Done() const;  // whether Wait would return at once

  // Queued on a stream of the plan's GPU; the host waits for nothing. FAILED_PRECONDITION for a
  // stream of another GPU, without rung_by_stream, and where this process has no CUDA; also the
  // error of a run before, once. When a run fails, or the daemon dies, the stream goes on: float
  // outputs hold NaN where they could be written.
  absl::Status RingOn(CUstream_st* stream);
  absl::Status WaitOn(CUstream_st* stream);

  absl::Status status() const;  // of the last run that was answered
  ArmedReport report() const;

  absl::Status Disarm(const CallOptions& options = {});

  // The session's side; use Session::Arm.
  struct State;
  explicit Armed(std::unique_ptr<State> state);

 private:
  const State& state() const;  // of an empty one where there is none
  absl::Status MayCall() const;

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::client
