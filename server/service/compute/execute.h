// ExecuteCall: one program, one answer. Serves Execute and RunPlan.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "server/service/compute/prepare.h"
#include "server/service/wire/call.h"

namespace gemmd::server {

class ExecuteCall final : public grpc::ServerUnaryReactor {
 public:
  struct Request {
    std::string_view session_id;
    v1::Priority priority;
    v1::ReportLevel report;
    absl::StatusOr<OpId> op_id;
  };
  using Prepare = absl::FunctionRef<absl::StatusOr<RunRequest>(SessionUse)>;
  // Reads the message of a caller that is admitted, and gives what is in it to `submit`.
  using Submit = absl::FunctionRef<absl::Status(Request, Prepare)>;
  using Read = absl::FunctionRef<absl::Status(const Call&, Submit submit)>;

  // Reads, prepares and submits at once. What is answered by then (a refusal, a replay, a program
  // that ran on this thread) is finished on gRPC's default reactor: a reactor of our own costs a
  // hop to an executor thread when it is done, a third of a tiny call's time. Anything else is
  // answered by an ExecuteCall, from wherever the program ends.
  static grpc::ServerUnaryReactor* Start(Method& method, grpc::CallbackServerContext* context,
                                         Read read, grpc::ByteBuffer* response);

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  ExecuteCall(Method& method, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : call_(method, context), response_(response) {}

  absl::Status Start(Request request, Prepare prepare);
  void Answer(std::shared_ptr<const Outcome> outcome, bool replayed);

  Call call_;
  grpc::ByteBuffer* const response_;
  v1::ReportLevel report_ = v1::REPORT_LEVEL_FULL;
  RunTicket ticket_;  // set before Start returns, and so before OnCancel
  absl::Mutex mutex_;
  bool bound_ ABSL_GUARDED_BY(mutex_) = false;     // gRPC has this reactor, and its Finish answers
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;  // before it was bound
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
