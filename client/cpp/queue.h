// A command queue: a stream on which batches are sent without waiting and complete in order.
//
//   absl::StatusOr<Queue> queue = session.OpenQueue();
//   absl::StatusOr<Ticket> ticket = queue->Submit(ops);  // blocks only while the window is full
//   absl::StatusOr<Result> result = ticket->Wait();

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/execute.h"
#include "client/cpp/ops.h"
#include "client/cpp/plan.h"
#include "client/cpp/result.h"
#include "client/cpp/types.h"

namespace gemmd::v1 {
class QueueOpened;
}  // namespace gemmd::v1

namespace gemmd::client {

class QueueCore;
class SessionCore;

struct QueueOptions {
  Priority priority = Priority::kNormal;
  ReportLevel report = ReportLevel::kFull;
  bool deterministic = false;  // of batches of ops, as ExecuteOptions::deterministic
  // Ties the session to this stream: it ends `grace` after the stream is cut.
  bool hold_session = false;
  // Batches that are submitted while the last message is on its way go into the next one together,
  // where the server takes that. False: each goes in a message of its own.
  bool gather = true;
  absl::Duration open_timeout = absl::Seconds(30);  // for the server's first word
  std::string traceparent = {};
};

struct SubmitOptions {
  // Clears the failure of an earlier batch and runs. Until then everything behind it is ABORTED.
  bool resume = false;
  // How long to wait for room in the window. Zero: without end. RESOURCE_EXHAUSTED when it is over,
  // and nothing was sent.
  absl::Duration timeout = absl::ZeroDuration();
};

// One batch in flight. Move-only; dropping it drops the result and leaves the batch running.
class Ticket {
 public:
  Ticket();  // no batch
  ~Ticket();
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) noexcept;

  int64_t sequence() const;
  bool done() const;
  // The batch's result, once; FAILED_PRECONDITION when it was taken before. The batch's own error
  // as its Status: ABORTED if one before it failed, UNAVAILABLE if the stream broke (whether it ran
  // is not known), DEADLINE_EXCEEDED when `timeout` is over (then ask again).
  absl::StatusOr<Result> Wait(absl::Duration timeout = absl::InfiniteDuration());

  struct Slot;
  explicit Ticket(std::shared_ptr<Slot> slot);

 private:
  std::shared_ptr<Slot> slot_;  // shared with the queue's reader, which fills it in
};

// Move-only, thread-safe but for moves and destruction; batches run in the order of the Submits.
// The destructor cuts the stream: batches not yet started are dropped by the server and their
// tickets fail CANCELLED. Call Close to let them finish. Must not be destroyed, drained or closed
// in a completion's callback.
class Queue {
 public:
  Queue();  // no queue
  ~Queue();
  Queue(Queue&&) noexcept;
  Queue& operator=(Queue&&) noexcept;

  // Sends a batch. Blocks while the server's window of batches or bytes is full, and once it
  // blocks, until an eighth of a window of batches is free (or the timeout is over). Fails with the
  // stream's status once that has broken, and INVALID_ARGUMENT (nothing sent) for invalid ops or
  // one batch with more inline data than the window holds.
  absl::StatusOr<Ticket> Submit(const OpList& ops, const SubmitOptions& options = {});
  absl::StatusOr<Ticket> Submit(const Plan& plan, const PlanArgs& args = {},
                                const SubmitOptions& options = {});
  // The same with a callback in the ticket's place: on a library thread, in order, must not block
  // (nor Submit while the window may be full).
  absl::Status Submit(const OpList& ops, ExecuteCallback done, const SubmitOptions& options = {});
  absl::Status Submit(const Plan& plan, const PlanArgs& args, ExecuteCallback done,
                      const SubmitOptions& options = {});

  // Waits until everything sent has completed, well or not, and its callbacks have returned. The
  // stream's status if it broke.
  absl::Status Drain(absl::Duration timeout = absl::InfiniteDuration());
  // Drains, ends the stream and returns its status. Submit fails from now on.
  absl::Status Close();

  // As the server opened it.
  int window_batches() const;
  int64_t window_bytes() const;
  const std::string& device() const;

  explicit Queue(std::unique_ptr<QueueCore> core);

 private:
  const v1::QueueOpened& opened() const;

  std::unique_ptr<QueueCore> core_;
};

}  // namespace gemmd::client
