#include "server/service/admin/hold.h"

#include <utility>

#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/service/wire/convert.h"

namespace gemmd::server {

HoldStream* HoldStream::Start(Method& method, grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer& request) {
  std::shared_ptr<HoldStream> stream(new HoldStream(method, context));
  stream->self_ = stream;
  method.state().metrics().Streams(method.name()).Increment();
  method.context().streams.Add(stream);
  if (absl::Status held = stream->Hold(request); !held.ok()) {
    stream->End(std::move(held));
  } else {
    v1::HoldEvent event;
    event.set_kind(v1::HoldEvent::KIND_HELD);
    stream->Send(std::move(event));
  }
  return stream.get();
}

absl::Status HoldStream::Hold(const grpc::ByteBuffer& bytes) {
  v1::HoldRequest request;
  if (absl::Status read = call_.Read(bytes, request); !read.ok()) return read;
  auto charge = call_.tenant().TakeStream();
  if (!charge.ok()) return charge.status();
  charge_ = *std::move(charge);
  auto use = call_.state().sessions().Use(call_.tenant(), request.session_id());
  if (!use.ok()) return use.status();
  session_ = (*use)->shared_from_this();
  // Weak: the session must not keep a stream that is gone.
  std::weak_ptr<HoldStream> weak = self_;
  auto ticket = session_->Hold({
      .ended =
          [weak] {
            if (auto stream = weak.lock()) {
              v1::HoldEvent event;
              event.set_kind(v1::HoldEvent::KIND_ENDED);
              stream->Send(std::move(event));
              stream->End(absl::OkStatus());
            }
          },
      .replaced =
          [weak] {
            if (auto stream = weak.lock()) {
              stream->End(WithReason(absl::AbortedError("another stream holds this session now"),
                                     reason::kCancelled));
            }
          },
  });
  if (!ticket.ok()) return ticket.status();
  ticket_ = *ticket;
  return absl::OkStatus();
}

void HoldStream::Send(v1::HoldEvent event) {
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    events_.push_back(std::move(event));
    if (busy_) return;
    busy_ = true;
  }
  Continue();
}

void HoldStream::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    ending_ = true;
    status_ = std::move(status);
    if (busy_) return;
    busy_ = true;
  }
  Continue();
}

void HoldStream::Continue() {
  bool write = false;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (!events_.empty()) {
      writing_ = std::move(events_.front());
      events_.pop_front();
      write = true;
    } else if (ending_ && !finished_) {
      finished_ = true;
      status = status_;
    } else {
      busy_ = false;
      return;
    }
  }
  if (write) {
    StartWrite(&writing_);
  } else {
    Finish(call_.Finish(status));
  }
}

void HoldStream::OnWriteDone(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    events_.clear();
  }
  Continue();
}

// Letting go is how a Hold ends. What it means, that a session was closed or a client is gone, is
// said and counted with the session's end.
void HoldStream::OnCancel() { End(absl::OkStatus()); }

void HoldStream::DrainNotice(absl::Time deadline) {
  v1::HoldEvent event;
  event.set_kind(v1::HoldEvent::KIND_DRAINING);
  *event.mutable_deadline() = ToProto(deadline);
  Send(std::move(event));
}

void HoldStream::DrainNow() {
  End(WithReason(absl::UnavailableError("the server is draining; go to another"),
                 reason::kDraining));
}

void HoldStream::OnDone() {
  if (session_ != nullptr && ticket_ > 0) session_->Unhold(ticket_, call_.state().clock().Now());
  call_.state().metrics().Streams(call_.method().name()).Decrement();
  call_.method().context().streams.Remove(self_);
  self_.reset();
}

}  // namespace gemmd::server
