// MessageStream: a server stream whose messages come from other threads, one by one, and at last a
// status. Base of Hold, Trace and Tune.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/gauge.h"
#include "server/engine/observe/metrics.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"
#include "status/propagate.h"

namespace gemmd::server {

// Owns itself until gRPC is done with it, then whoever (registry, session, tuner) is still calling
// it.
template <typename Message>
class MessageStream : public grpc::ServerWriteReactor<Message>, public DrainableStream {
 public:
  // For Rpcs::ServeWriter: begins a Stream, which an error of its Begin ends.
  template <typename Stream>
  static Stream* Start(Method& method, grpc::CallbackServerContext* context,
                       const grpc::ByteBuffer& request) {
    const auto stream = std::make_shared<Stream>(method, context);
    stream->self_ = stream;
    method.context().streams.Add(stream);
    if (absl::Status begun = stream->Begin(request); !begun.ok()) {
      stream->End(std::move(begun));
      return stream.get();
    }
    // Counted once it has begun: whoever sees the count may rely on that.
    method.state().metrics().Streams(method.name()).Increment();
    stream->counted_ = true;
    return stream.get();
  }

  MessageStream(Method& method, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream) {}

  void OnWriteDone(bool ok) final {
    if (!ok) OnCancel();
    {
      absl::MutexLock lock(&mutex_);
      busy_ = false;
    }
    Written();
    Advance();
  }
  void OnCancel() final {
    {
      absl::MutexLock lock(&mutex_);
      broken_ = true;
      messages_.clear();
    }
    Broken();
  }
  void OnDone() override {
    {
      absl::MutexLock lock(&mutex_);
      charge_.Release();  // others may keep this for a while
    }
    if (counted_) call_.state().metrics().Streams(call_.method().name()).Decrement();
    const std::shared_ptr<MessageStream> self = std::move(self_);
    call_.method().context().streams.Remove(self);
  }

 protected:
  // Nobody reads any more: messages are dropped. To End, now or when what is under way has ended.
  virtual void Broken() = 0;
  // gRPC has taken a message, or failed to.
  virtual void Written() {}

  // Reads the message of a caller that is admitted, and takes one of the tenant's streams.
  absl::Status Read(const grpc::ByteBuffer& bytes, google::protobuf::Message& request) {
    GEMMD_RETURN_IF_ERROR(call_.Read(bytes, request));
    GEMMD_ASSIGN_OR_RETURN(Charge charge, call_.tenant().TakeStream());
    absl::MutexLock lock(&mutex_);
    charge_ = std::move(charge);
    return absl::OkStatus();
  }

  void Send(Message message) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_ || broken_) return;
      messages_.push_back(std::move(message));
    }
    Advance();
  }
  // Finishes with `status` once what was sent before is written. The first one counts.
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(ended_, true)) return;
      status_ = std::move(status);
    }
    Advance();
  }

  // Whether what is sent now is written now.
  bool Idle() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return !busy_ && messages_.empty();
  }

  bool broken() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return broken_;
  }

  Call& call() { return call_; }
  // Until OnDone.
  const std::shared_ptr<MessageStream>& self() const { return self_; }

 private:
  // Writes the next message, or finishes.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::Status status;
    bool write = false;
    {
      absl::MutexLock lock(&mutex_);
      if (busy_ || (messages_.empty() && !ended_)) return;
      busy_ = true;  // for good once it finishes
      write = !messages_.empty();
      if (write) {
        message_ = std::move(messages_.front());
        messages_.pop_front();
      } else {
        status = status_;
        charge_.Release();  // who sees the end may open the next one; OnDone comes some time after
      }
    }
    if (write) {
      this->StartWrite(&message_);
    } else {
      this->Finish(call_.Finish(status));
    }
  }

  Call call_;
  bool counted_ = false;  // in the gauge of streams; gRPC calls nothing back before Start returns
  std::shared_ptr<MessageStream> self_;
  mutable absl::Mutex mutex_;
  Charge charge_ ABSL_GUARDED_BY(mutex_);  // one of the tenant's streams
  std::deque<Message> messages_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Message message_;  // gRPC reads it while busy_
};

}  // namespace gemmd::server
