// HoldStream: ties a session to a stream and carries news to its client.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_
#define GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_

#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <memory>

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// Owns itself: `self_` until gRPC is done with it, then whoever (registry, session) is still
// calling it.
class HoldStream final : public grpc::ServerWriteReactor<v1::HoldEvent>, public DrainableStream {
 public:
  static HoldStream* Start(Method& method, grpc::CallbackServerContext* context,
                           const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void DrainNotice(absl::Time deadline) override;
  void DrainNow() override;

 private:
  HoldStream(Method& method, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream) {}

  absl::Status Hold(const grpc::ByteBuffer& bytes);
  void Send(v1::HoldEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Finishes with `status` once what was sent before is written.
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts the next write, or finishes. Called with nothing in flight.
  void Continue() ABSL_LOCKS_EXCLUDED(mutex_);

  Call call_;
  Charge charge_;
  std::shared_ptr<HoldStream> self_;
  std::shared_ptr<Session> session_;
  int64_t ticket_ = 0;

  absl::Mutex mutex_;
  std::deque<v1::HoldEvent> events_ ABSL_GUARDED_BY(mutex_);
  v1::HoldEvent writing_;  // gRPC reads it while busy_
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_
