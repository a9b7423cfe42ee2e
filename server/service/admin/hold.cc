#include "server/service/admin/hold.h"

#include <memory>
#include <utility>

#include "server/engine/reason.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/message_stream.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

class HoldStream final : public MessageStream<v1::HoldEvent> {
 public:
  using MessageStream::MessageStream;

  absl::Status Begin(const grpc::ByteBuffer& bytes);
  void OnDone() override;
  void DrainNotice(absl::Time deadline) override {
    v1::HoldEvent event;
    event.set_kind(v1::HoldEvent::KIND_DRAINING);
    *event.mutable_deadline() = ToProto(deadline);
    Send(std::move(event));
  }
  void DrainNow() override { End(Draining()); }

 private:
  void Broken() override { End(absl::OkStatus()); }
  void Send(v1::HoldEvent::Kind kind) {
    v1::HoldEvent event;
    event.set_kind(kind);
    MessageStream::Send(std::move(event));
  }
  using MessageStream::Send;

  std::shared_ptr<Session> session_;
  int64_t ticket_ = 0;
};

absl::Status HoldStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::HoldRequest request;
  GEMMD_RETURN_IF_ERROR(Read(bytes, request));
  GEMMD_ASSIGN_OR_RETURN(auto use, call().UseSession(request.session_id()));
  session_ = use->shared_from_this();
  // Weak: the session must not keep a stream that is gone.
  const std::weak_ptr<MessageStream> weak = self();
  auto ticket = session_->Hold({
      .ended =
          [this, weak] {
            const auto kept = weak.lock();
            if (kept == nullptr) return;
            Send(v1::HoldEvent::KIND_ENDED);
            End(absl::OkStatus());
          },
      .replaced =
          [this, weak] {
            const auto kept = weak.lock();
            if (kept == nullptr) return;
            End(WithReason(absl::AbortedError("another stream holds this session now"),
                           reason::kCancelled));
          },
  });
  if (!ticket.ok()) return ticket.status();
  ticket_ = *ticket;
  Send(v1::HoldEvent::KIND_HELD);
  return absl::OkStatus();
}

void HoldStream::OnDone() {
  if (session_ != nullptr && ticket_ > 0) session_->Unhold(ticket_, call().state().clock().Now());
  MessageStream::OnDone();
}

}  // namespace

grpc::ServerWriteReactor<v1::HoldEvent>* ServeHold(Method& method,
                                                   grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer& request) {
  return HoldStream::Start<HoldStream>(method, context, request);
}

}  // namespace gemmd::server
