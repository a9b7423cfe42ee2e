#include "client/cpp/plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/plan_state.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/calls/run.h"
#include "client/cpp/internal/calls/shared_run.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client {

Plan::Plan() = default;
Plan::Plan(std::unique_ptr<State> state) : state_(std::move(state)) {}
Plan::Plan(Plan&&) noexcept = default;

Plan::~Plan() {
  if (!state_) return;
  state_->session->reaper().DropPlan(state_->id);
}

Plan& Plan::operator=(Plan&& other) noexcept {
  Plan old(std::move(other));
  std::swap(state_, old.state_);
  return *this;
}

const Plan::State& Plan::state() const {
  if (state_) return *state_;
  // Not before: to make it makes a channel, and a forked child must not.
  static const State& none = *new State{.session = SessionCore::None()};
  return none;
}

const Handle& Plan::id() const { return state().id; }
const v1::Plan& Plan::info() const { return state().info; }

absl::StatusOr<Result> Plan::Run(const PlanArgs& args, const ExecuteOptions& options) const {
  return RunPlan(state(), args, options);
}

void Plan::RunAsync(const PlanArgs& args, const ExecuteOptions& options,
                    ExecuteCallback done) const {
  RunPlanAsync(state(), args, options, std::move(done));
}

absl::Status Plan::Delete(const CallOptions& options) {
  if (!state_) return absl::FailedPreconditionError("this Plan object holds none");
  const std::unique_ptr<State> state = std::move(state_);
  v1::DeletePlanRequest request;
  request.set_plan_id(std::string(state->id.bytes()));
  return state->session->Ask<v1::DeletePlanResponse>(request, options).status();
}

Handle Plan::Release() {
  if (!state_) return Handle();
  return std::exchange(state_, nullptr)->id;
}

namespace {

absl::StatusOr<v1::Plan> CreatePlan(const SessionCore& session, absl::string_view ops,
                                    const PlanOptions& options) {
  std::string request;
  wire::AppendBytes(request, v1::CreatePlanRequest::kSessionIdFieldNumber,
                    session.facts().id.bytes());
  if (!options.label.empty()) {
    wire::AppendBytes(request, v1::CreatePlanRequest::kLabelFieldNumber, options.label);
  }
  wire::AppendInt(request, v1::CreatePlanRequest::kDeterministicFieldNumber, options.deterministic);
  request.append(ops.data(), ops.size());
  const grpc::ByteBuffer bytes = ToByteBuffer(request);
  v1::Plan info;
  const absl::Status status =
      Call(session.client(), options.call, Again::kUnsentOnly, [&](grpc::ClientContext& context) {
        return RawUnary(*session.connection().channel(), kCreatePlanMethod, context, bytes, info);
      });
  return status.ok() ? absl::StatusOr<v1::Plan>(std::move(info)) : status;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(std::shared_ptr<SessionCore> session, const OpList& ops,
                              const PlanOptions& options) {
  if (!ops.status().ok()) return ops.status();
  const bool dropping = !session->reaper().Idle();  // before: the deletion may overtake the answer
  absl::StatusOr<v1::Plan> info = CreatePlan(*session, ops.wire(), options);
  // What was dropped may be what is in the way.
  if (absl::IsResourceExhausted(info.status()) && dropping) {
    session->reaper().Flush();
    info = CreatePlan(*session, ops.wire(), options);
  }
  if (!info.ok()) return info.status();
  auto state = std::make_unique<Plan::State>();
  state->info = *std::move(info);
  const absl::StatusOr<Handle> id = Handle::FromBytes(state->info.plan_id());
  if (!id.ok()) {
    return absl::InternalError(absl::StrCat("the server's plan: ", id.status().message()));
  }
  state->id = *id;
  // A plan on several devices takes its inline data in messages alone.
  const bool one_device = state->info.device().find(',') == std::string::npos;
  if (one_device && InlineSizesOf(ops).value_or(InlineSizes()).data > 0) {
    state->ops = std::make_shared<const OpList>(ops);
  }
  state->session = std::move(session);
  return Plan(std::move(state));
}

}  // namespace gemmd::client
