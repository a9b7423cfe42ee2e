// QueueStream: batches in, completions out, in order, many in flight.
//
// A batch is prepared on the thread that read it, and its job goes to the lane at once; jobs of one
// stream share a session and priority, so the lane keeps their order. Lanes of two devices know
// nothing of each other: a batch that touches another device than what is under way waits for its
// turn here, and nothing more is read meanwhile (queue_turns.cc). Completions wait here until all
// before them are done. While a write is under way finished ones gather, so a slow reader gets
// fewer, larger messages.

#ifndef GEMMD_SERVER_SERVICE_QUEUE_H_
#define GEMMD_SERVER_SERVICE_QUEUE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/service/call.h"
#include "server/service/prepare.h"
#include "server/service/streams.h"

namespace gemmd::server {

// The batches of a stream that are under way: those that their device's lane keeps in order.
class InFlight {
 public:
  // Whether `run` stays behind all of them: there are none, or they and it touch one device alone.
  bool Orders(const RunRequest& run) const {
    return batches_ == 0 || (run.sources.empty() && run.device == device_);
  }
  void Add(const RunRequest& run) {
    ++batches_;
    device_ = run.sources.empty() ? run.device : nullptr;
  }
  void Remove() { --batches_; }

 private:
  int64_t batches_ = 0;
  const Device* device_ = nullptr;  // null when the one there is reads other devices
};

// Kept alive by gRPC (until OnDone), the registry, and each batch under way.
class QueueStream final : public grpc::ServerBidiReactor<v1::QueueRequest, v1::QueueResponse>,
                          public DrainableStream,
                          public std::enable_shared_from_this<QueueStream> {
 public:
  static QueueStream* Start(Method& method, StreamRegistry& streams,
                            grpc::CallbackServerContext* context);

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
    int64_t inline_bytes = 0;
    std::unique_ptr<v1::Batch> batch;  // keeps inline data alive; null when there is none
    RunTicket ticket;
    bool in_flight = false;
    bool done = false;
    absl::Status status;
    std::shared_ptr<const Outcome> outcome;
  };

  // A batch that waits for its turn. There is one at most: nothing is read behind it.
  struct Waiting {
    std::shared_ptr<Entry> entry;
    RunRequest run;
  };

  QueueStream(Method& method, StreamRegistry& streams, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream), streams_(streams) {}

  absl::Status Open(const v1::QueueOpen& open);
  // An error ends the stream; a batch that is merely wrong is completed with its error. False when
  // the batch waits for its turn, which then reads on.
  absl::StatusOr<bool> Accept(v1::Batch* batch);
  absl::StatusOr<RunRequest> Prepare(const v1::Batch& batch);
  void Start(const std::shared_ptr<Entry>& entry, RunRequest run) ABSL_LOCKS_EXCLUDED(mutex_);
  // All before it are answered. Called by a callback that keeps this alive: gRPC may be through
  // with it.
  void TakeTurn(std::unique_ptr<Waiting> waiting) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(Waiting& waiting, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(const std::shared_ptr<Entry>& entry, absl::Status status,
                std::shared_ptr<const Outcome> outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes what is done, or finishes when everything is.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves finished entries from the front into message_. True if there were any.
  bool Gather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No more batches; finishes with `status` once those accepted are answered.
  void EndAfterAnswers(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);

  Call call_;
  StreamRegistry& streams_;
  Charge charge_;
  std::shared_ptr<QueueStream> self_;

  // Set by Open; read only by the reading thread, which is one at a time.
  std::shared_ptr<Session> session_;
  int64_t hold_ticket_ = 0;
  Priority priority_ = Priority::kNormal;
  v1::ReportLevel report_ = v1::REPORT_LEVEL_FULL;
  std::shared_ptr<Chain> chain_;
  int64_t last_sequence_ = INT64_MIN;
  v1::QueueRequest request_;

  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // in the order received
  int64_t inline_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  InFlight in_flight_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool opened_pending_ ABSL_GUARDED_BY(mutex_) = false;  // QueueOpened is to be written first
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // nothing can be written any more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  v1::QueueResponse message_;  // gRPC reads it while writing_
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_QUEUE_H_
