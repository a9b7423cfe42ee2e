// The stream behind a Queue: who may send when, and which completion belongs to which ticket.

#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/queue.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

// One batch. The submitter waits on it, the stream's reader fills it in.
struct Ticket::Slot {
  int64_t sequence = 0;
  int64_t inline_bytes = 0;
  ExecuteCallback callback;  // instead of a ticket

  absl::Mutex mu;
  bool done ABSL_GUARDED_BY(mu) = false;
  bool taken ABSL_GUARDED_BY(mu) = false;
  absl::StatusOr<Result> result ABSL_GUARDED_BY(mu) = absl::UnknownError("not completed");

  void Complete(absl::StatusOr<Result> outcome);
};

// gRPC's callback API: submitters write from their own threads when no write is under way, else the
// completion of that write sends the next; completions arrive on gRPC's threads. No thread of its
// own, no hop per message. Lives until OnDone; the destructor cancels and waits for it.
class QueueCore final : public grpc::ClientBidiReactor<grpc::ByteBuffer, v1::QueueResponse> {
 public:
  static absl::StatusOr<std::unique_ptr<QueueCore>> Open(std::shared_ptr<SessionCore> session,
                                                         const QueueOptions& options);
  ~QueueCore() override;

  // `body` is a Batch's ops or plan, encoded; `slot` knows its inline bytes.
  absl::Status Submit(absl::string_view body, const SubmitOptions& options,
                      std::shared_ptr<Ticket::Slot> slot);
  absl::Status Drain(absl::Duration timeout);
  absl::Status Close();

  const Handle& session_id() const { return session_->facts().id; }
  const v1::QueueOpened& opened() const { return opened_; }

  // gRPC's side.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  // A batch that waits for its message.
  struct Unsent {
    std::string head;  // sequence and resume, encoded
    grpc::Slice body;  // ops or plan, encoded
    size_t size() const { return head.size() + body.size(); }
  };

  QueueCore(std::shared_ptr<SessionCore> session, bool gather)
      : session_(std::move(session)), gather_(gather) {}

  absl::Status Start(const QueueOptions& options);
  // Why nothing more can be sent; waits for the stream's last word if it has just broken.
  absl::Status Broken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Fits(int64_t inline_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a submitter that waits should look again.
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How many batches the next message takes: the oldest one, and those behind it if all are small.
  int Gathered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes a message of the front of outbox_ write_, for the caller to write: without the lock,
  // which completions and submitters would otherwise sleep for.
  grpc::WriteOptions TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No more writes from outside: lets OnDone come once the operations under way are over.
  void Unhold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the completed batches off the front. False if they are not the oldest ones, in order.
  bool Take(v1::Completions& completions);

  const std::shared_ptr<SessionCore> session_;  // owns the connection; shared with the Session
  const bool gather_;
  grpc::ClientContext context_;
  v1::QueueResponse response_;  // the reader's
  v1::QueueOpened opened_;      // constant once open

  absl::Mutex mu_;
  absl::CondVar room_;  // a batch completed, or the stream broke
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_open_ ABSL_GUARDED_BY(mu_) = false;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // Close was called
  bool broken_ ABSL_GUARDED_BY(mu_) = false;   // a read or write failed; status_ is on its way
  bool over_ ABSL_GUARDED_BY(mu_) = false;     // OnDone ran; status_ says how it ended
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  absl::Status protocol_ ABSL_GUARDED_BY(mu_);  // why we ended it, if we did
  int64_t next_sequence_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t inline_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // in flight
  grpc::ByteBuffer write_;                         // under way: whoever set writing_ touches it
  std::deque<Unsent> outbox_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Ticket::Slot>> in_flight_ ABSL_GUARDED_BY(mu_);  // oldest first
  bool completing_ ABSL_GUARDED_BY(mu_) = false;  // callbacks run of batches that have left it
};

}  // namespace gemmd::client
