#include "client/cpp/session.h"

#include <utility>

#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/plan_state.h"
#include "client/cpp/internal/calls/queue_core.h"
#include "client/cpp/internal/calls/run.h"
#include "client/cpp/internal/connect/session_core.h"

namespace gemmd::client {

Session::Session() = default;
Session::Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
Session::Session(Session&&) noexcept = default;

Session::~Session() {
  if (core_) core_->End();
}

Session& Session::operator=(Session&& other) noexcept {
  Session old(std::move(core_));
  core_ = std::move(other.core_);
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
  absl::StatusOr<std::unique_ptr<QueueCore>> queue = QueueCore::Open(core_, options);
  if (!queue.ok()) return queue.status();
  return Queue(*std::move(queue));
}

absl::StatusOr<Plan> Session::CreatePlan(const OpList& ops, const PlanOptions& options) {
  return MakePlan(core_, ops, options);
}

absl::Status Session::DeletePlan(const Handle& id, const CallOptions& options) {
  v1::DeletePlanRequest request;
  request.set_session_id(core_->id());
  request.set_plan_id(std::string(id.bytes()));
  return UnaryCall{core_->client(), options, Again::kUnsentOnly}(
             core_->connection().compute, &v1::ComputeService::Stub::DeletePlan, request)
      .status();
}

absl::StatusOr<absl::Time> Session::KeepAlive(const CallOptions& options) {
  v1::KeepAliveRequest request;
  request.set_session_id(core_->id());
  absl::StatusOr<v1::KeepAliveResponse> response =
      UnaryCall{core_->client(), options, Again::kAfterBreak}(
          core_->connection().sessions, &v1::SessionService::Stub::KeepAlive, request);
  if (!response.ok()) return response.status();
  return absl::FromUnixSeconds(response->expire_time().seconds()) +
         absl::Nanoseconds(response->expire_time().nanos());
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
