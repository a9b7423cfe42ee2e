// QueueStream: batches in, completions out, in order, many in flight.
//
// Two things overlap, each done by one thread at a time, whichever comes by: calling gRPC, to read
// a few messages ahead (queue_inbox.h) and to write completions (queue.cc); and accepting what was
// read, in order (queue_accept.cc). An accepted batch's job goes to the lane at once; jobs of one
// stream share a session and priority, so the lane keeps their order. Lanes of two devices know
// nothing of each other: a batch that touches another device than what is under way waits for its
// turn here, and nothing behind it is accepted meanwhile (queue_turns.cc). Completions wait here
// until all before them are done. While a write is under way finished ones gather, so a slow reader
// gets fewer, larger messages.
//
// The lock is held for bookkeeping alone: a call to gRPC takes longer than all the rest of a small
// batch, and whoever met the lock during one would go to sleep.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/service/compute/prepare.h"
#include "server/service/compute/queue_inbox.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// The batches of a stream that are under way: those that their device's lane keeps in order.
class InFlight {
 public:
  // Whether `run` stays behind all of them: there are none, or they and it touch one device alone.
  bool Orders(const RunRequest& run) const {
    return batches_ == 0 || (run.on_one_device() && run.device == device_);
  }
  void Add(const RunRequest& run) {
    ++batches_;
    device_ = run.on_one_device() ? run.device : nullptr;
  }
  void Remove() { --batches_; }

 private:
  int64_t batches_ = 0;
  const Device* device_ = nullptr;  // null when the one there is touches others
};

// Kept alive by gRPC (until OnDone), the registry, and each batch under way.
class QueueStream final
    : public grpc::ServerBidiReactor<MaybeMessage<v1::QueueRequest>, v1::QueueResponse>,
      public DrainableStream,
      public std::enable_shared_from_this<QueueStream> {
 public:
  static QueueStream* Start(Method& method, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void DrainNotice(absl::Time) override {
  }  // Hold carries the notice; a queue works on until DrainNow
  void DrainNow() override;

 private:
  struct Entry {
    int64_t sequence = 0;
    absl::Time sampled_at = absl::InfiniteFuture();  // when it was accepted, if it is to be a span
    int64_t inline_bytes = 0;
    std::unique_ptr<v1::Batch> batch;            // keeps inline data alive; null when there is none
    std::shared_ptr<const Charge> batch_charge;  // of host memory, for `batch`; null for little
    int64_t result_bytes = 0;                    // that its Read ops bring, once it is started
    RunTicket ticket;
    bool in_flight = false;
    bool done = false;
    absl::Status status;
    std::shared_ptr<const Outcome> outcome;
  };

  // A batch that waits for its turn. There is one at most: nothing is accepted behind it.
  struct Waiting {
    std::shared_ptr<Entry> entry;
    RunRequest run;
  };

  QueueStream(Method& method, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream), deadline_(call_.deadline()) {}

  // What a message that was read takes of the tenant's host memory; null for a small one.
  absl::StatusOr<std::shared_ptr<const Charge>> ChargeMessage(const v1::QueueRequest& message,
                                                              int64_t bytes);

  // What the thread that accepts does; it is one at a time.
  absl::Status Open(const v1::QueueOpen& open);
  absl::StatusOr<bool> Take(v1::QueueRequest& message, int item);
  // Counts it to the window, or refuses it. False when the stream is ending.
  absl::StatusOr<bool> Enter(const std::shared_ptr<Entry>& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // An error ends the stream; a batch that is merely wrong is completed with its error. False when
  // the batch waits for its turn, which then goes on with what is behind it.
  absl::StatusOr<bool> Accept(v1::Batch* batch);
  absl::StatusOr<RunRequest> Prepare(const v1::Batch& batch);
  // Accepts what was read, until nothing more is there or something ends or delays it. Not while
  // another thread does.
  void AcceptAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for the thread whose turn it is.
  void AcceptOn() ABSL_LOCKS_EXCLUDED(mutex_);
  void AcceptInbox() ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes on behind the opening or the batch that was just accepted.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether what is accepted next takes microseconds.
  bool FewOpsNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(const std::shared_ptr<Entry>& entry, RunRequest run) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a batch may start: what is under way keeps it in order, and its results fit into the
  // stream's window beside those that the client has not taken. One that is alone always may.
  bool MayStart(const RunRequest& run, const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteStarted(const RunRequest& run, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The batch that waits, if it may start by now.
  std::unique_ptr<Waiting> NextTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All before it are answered, or enough is read. Called by a callback that keeps this alive: gRPC
  // may be through with it.
  void TakeTurn(std::unique_ptr<Waiting> waiting) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(Waiting& waiting, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void OfferSpan(const Entry& entry, const absl::Status& status, const Outcome* outcome);
  void Complete(const std::shared_ptr<Entry>& entry, absl::Status status,
                std::shared_ptr<const Outcome> outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads, writes or finishes, as far as there is reason to. One thread at a time: gRPC passes the
  // work of two that call it at once for one connection to a third, which has to wake first.
  // Whoever finds another thread here leaves its wish to that one.
  void Drive() ABSL_LOCKS_EXCLUDED(mutex_);
  enum class Step { kNone, kRead, kWrite, kFinish };
  // What to do next. Whoever is told does it, without the lock.
  Step NextStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves finished entries from the front to sending_. True if there is something to write.
  bool Gather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether what could be written now is better left to the thread that accepts.
  bool LeaveToAccepting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes message_ of them.
  void FillMessage();
  // No more batches; finishes with `status` once those accepted are answered.
  void EndAfterAnswers(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);

  Call call_;
  std::shared_ptr<QueueStream> self_;

  // Set by Open; used by the thread that accepts, and what is constant from then on by others.
  std::shared_ptr<Session> session_;
  int64_t hold_ticket_ = 0;
  Priority priority_ = Priority::kNormal;
  v1::ReportLevel report_ = v1::REPORT_LEVEL_FULL;
  Kernels kernels_ = Kernels::kBest;
  std::shared_ptr<Chain> chain_;
  int64_t last_sequence_ = INT64_MIN;
  const absl::Time deadline_;  // gRPC's, whose context may be gone when a batch has its turn

  absl::Mutex mutex_;
  Charge charge_ ABSL_GUARDED_BY(mutex_);  // one of the tenant's streams
  std::deque<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // in the order received
  int64_t inline_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t result_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of started batches, until written
  InFlight in_flight_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // Places change hands under the lock: a message is gRPC's until it is read, then the accepting
  // thread's.
  QueueInbox inbox_ ABSL_GUARDED_BY(mutex_);
  int item_ ABSL_GUARDED_BY(mutex_) = 0;  // the batch of inbox_.front() that is accepted next
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_all_ ABSL_GUARDED_BY(mutex_) = false;   // nothing comes any more
  bool accepting_ ABSL_GUARDED_BY(mutex_) = false;  // some thread accepts, or a batch waits
  int held_ ABSL_GUARDED_BY(mutex_) = 0;            // completions that the next one takes along
  // In AcceptOn, and in Drive before they leave it: two when one leaves a batch that has its turn
  // with the other.
  int accepting_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool accepts_few_ops_ ABSL_GUARDED_BY(mutex_) = false;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;                 // entries_ that are
  bool opened_pending_ ABSL_GUARDED_BY(mutex_) = false;  // QueueOpened is to be written first
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // nothing can be written any more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;  // some thread is in Drive, and looks again
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // From NextStep to the end of the write the driving thread's, then gRPC's.
  std::vector<std::shared_ptr<Entry>> sending_;
  std::vector<std::shared_ptr<const Charge>> sending_charges_;  // of the results in message_
  int64_t sending_bytes_ = 0;                                   // of those results
  int64_t message_bytes_ = 0;  // about what message_ was filled with since it was made
  bool sending_opened_ = false;
  v1::QueueResponse message_;
};

}  // namespace gemmd::server
