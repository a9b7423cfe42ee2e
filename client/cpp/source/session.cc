#include "client/cpp/session.h"

#include <google/protobuf/util/time_util.h>

#include <utility>

#include "client/cpp/internal/calls/plan_state.h"
#include "client/cpp/internal/calls/queue_core.h"
#include "client/cpp/internal/calls/run.h"
#include "client/cpp/internal/connect/session_core.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {

Session::Session() = default;
Session::Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
Session::Session(Session&&) noexcept = default;

Session::~Session() {
  if (core_) core_->End();
}

Session& Session::operator=(Session&& other) noexcept {
  Session old(std::move(other));
  std::swap(core_, old.core_);
  return *this;
}

const Handle& Session::id() const { return core_->facts().id; }
const std::string& Session::name() const { return core_->facts().name; }
const std::string& Session::device() const { return core_->facts().device; }
absl::Duration Session::ttl() const { return core_->facts().ttl; }

absl::StatusOr<Result> Session::Execute(const OpList& ops, const ExecuteOptions& options) {
  if (!ops.status().ok()) return ops.status();
  return RunOps(*core_, ops, options);
}

void Session::ExecuteAsync(const OpList& ops, const ExecuteOptions& options, ExecuteCallback done) {
  if (!ops.status().ok()) {
    done(ops.status());
    return;
  }
  RunOpsAsync(core_, ops, options, std::move(done));
}

std::future<absl::StatusOr<Result>> Session::ExecuteAsync(const OpList& ops,
                                                          const ExecuteOptions& options) {
  // Shared because a std::function must be copyable.
  auto promise = std::make_shared<std::promise<absl::StatusOr<Result>>>();
  std::future<absl::StatusOr<Result>> future = promise->get_future();
  ExecuteAsync(ops, options,
               [promise](absl::StatusOr<Result> result) { promise->set_value(std::move(result)); });
  return future;
}

absl::StatusOr<Queue> Session::OpenQueue(const QueueOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<QueueCore> queue, QueueCore::Open(core_, options));
  return Queue(std::move(queue));
}

absl::StatusOr<Plan> Session::CreatePlan(const OpList& ops, const PlanOptions& options) {
  return MakePlan(core_, ops, options);
}

absl::Status Session::DeletePlan(const Handle& id, const CallOptions& options) {
  v1::DeletePlanRequest request;
  request.set_plan_id(std::string(id.bytes()));
  return core_->Ask<v1::DeletePlanResponse>(request, options).status();
}

absl::StatusOr<absl::Time> Session::KeepAlive(const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const v1::KeepAliveResponse response,
                         core_->Ask<v1::KeepAliveResponse>(v1::KeepAliveRequest(), options));
  return absl::FromUnixNanos(
      google::protobuf::util::TimeUtil::TimestampToNanoseconds(response.expire_time()));
}

void Session::FlushDeletions() { core_->reaper().Flush(); }

int64_t Session::background_errors() const { return core_->errors().count(); }

absl::StatusOr<SessionClosed> Session::Close(const CallOptions& options) {
  return core_->Close(options);
}

Handle Session::Release() {
  core_->Release();
  return core_->facts().id;
}

}  // namespace gemmd::client
