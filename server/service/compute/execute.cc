#include "server/service/compute/execute.h"

#include <utility>

#include "server/engine/reason.h"
#include "server/engine/scheduling/span_parts.h"
#include "server/service/wire/reply.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status Cancelled() {
  return WithReason(absl::CancelledError("the caller cancelled before the program started"),
                    reason::kCancelled);
}

}  // namespace

grpc::ServerUnaryReactor* ExecuteCall::Start(Method& method, grpc::CallbackServerContext* context,
                                             Read read, grpc::ByteBuffer* response) {
  std::unique_ptr<ExecuteCall> call(new ExecuteCall(method, context, response));
  absl::Status status = call->call_.admission();
  if (status.ok()) {
    status = read(call->call_, [&call](Request request, Prepare prepare) {
      return call->Start(std::move(request), prepare);
    });
  }
  {
    absl::MutexLock lock(&call->mutex_);
    if (status.ok() && !call->answered_) {
      call->bound_ = true;
      return call.release();  // deleted by OnDone; not touched here again
    }
    if (status.ok()) status = call->status_;
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(call->call_.Finish(status));
  return reactor;
}

absl::Status ExecuteCall::Start(Request request, Prepare prepare) {
  report_ = request.report;
  GEMMD_RETURN_IF_ERROR(call_.state().CheckOpen());
  if (!request.op_id.ok()) return request.op_id.status();
  GEMMD_ASSIGN_OR_RETURN(auto priority, Convert(request.priority));
  GEMMD_ASSIGN_OR_RETURN(auto use, call_.UseSession(request.session_id));
  GEMMD_ASSIGN_OR_RETURN(auto run, prepare(std::move(use)));
  run.priority = priority;
  run.deadline = call_.deadline();
  run.op_id = *std::move(request.op_id);
  // A reactor that is finished on another thread than its own costs gRPC a thread's wake, which is
  // more than most programs take.
  run.caller_waits = true;
  CountRun(call_.state(), run);
  ticket_ = Run(std::move(run), [this](std::shared_ptr<const Outcome> outcome, bool replayed) {
    Answer(std::move(outcome), replayed);
  });
  return absl::OkStatus();
}

void ExecuteCall::Answer(std::shared_ptr<const Outcome> outcome, bool replayed) {
  const absl::Status status = outcome->result.status;
  if (call_.sampled() && !replayed && outcome->program != nullptr) {
    call_.AddParts(PartsOf(*outcome->program, outcome->device, outcome->result));
  }
  if (status.ok()) *response_ = MakeReply(outcome, replayed, report_);
  outcome.reset();
  {
    absl::MutexLock lock(&mutex_);
    if (!bound_) {
      status_ = status;
      answered_ = true;
      return;
    }
  }
  Finish(call_.Finish(status));
}

void ExecuteCall::OnCancel() { ticket_.Cancel(Cancelled()); }

}  // namespace gemmd::server
