#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/engine/scheduling/split_program.h"
#include "server/engine/sessions/host_bytes.h"
#include "server/engine/text.h"
#include "server/service/compute/execute.h"
#include "server/service/compute/prepare.h"
#include "server/service/compute/queue.h"
#include "server/service/services.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/request_pool.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

template <typename Request>
absl::StatusOr<std::shared_ptr<const Request>> Parse(RequestPool<Request>& pool,
                                                     const grpc::ByteBuffer& request,
                                                     const InlineData* taken) {
  return taken != nullptr ? pool.Parse(taken->rest) : pool.Parse(request);
}

// `message`, of so many bytes on the wire, is what the run's inputs point into, unless they were
// taken out of it.
template <typename Request>
absl::StatusOr<RunRequest> Keeping(const std::shared_ptr<const Request>& message,
                                   size_t message_bytes, absl::StatusOr<RunRequest> run) {
  if (!run.ok() || run->message != nullptr || run->inputs.empty() || run->inputs_charged) {
    return run;
  }
  int64_t rest = static_cast<int64_t>(message_bytes);
  for (const auto& input : run->inputs) rest -= static_cast<int64_t>(input.size());
  run->message_bytes = kParsedByte * std::max<int64_t>(rest, 0);
  run->message = message;
  return run;
}

// Execute and RunPlan. These two carry matrices, if small ones, and make their replies by hand
// (reply.h).
class Programs {
 public:
  absl::Status SubmitOps(const grpc::ByteBuffer& request, ExecuteCall::Submit submit);
  absl::Status SubmitPlan(const grpc::ByteBuffer& request, ExecuteCall::Submit submit);

 private:
  RequestPool<v1::ExecuteRequest> execute_requests_;
  RequestPool<v1::RunPlanRequest> run_plan_requests_;
};

absl::Status Programs::SubmitOps(const grpc::ByteBuffer& request, ExecuteCall::Submit submit) {
  const grpc::Slice bytes = SmallRequest(request);
  auto view = ExecuteView::Of({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
  std::shared_ptr<InlineData> taken;
  if (!view) {
    taken = TakeExecuteData(const_cast<grpc::ByteBuffer&>(request));
    if (taken != nullptr) view = ExecuteView::Of(taken->rest, ExecuteView::Data::kTakenOut);
  }
  if (view) {
    return submit({view->session_id, view->priority, view->report, OpIdOf(*view, taken.get())},
                  [&](SessionUse use) {
                    return PrepareView(std::move(use), *view, taken, execute_requests_);
                  });
  }
  const size_t message_bytes = request.Length();  // parsing empties it
  GEMMD_ASSIGN_OR_RETURN(const auto parsed, Parse(execute_requests_, request, taken.get()));
  const v1::ExecuteRequest& message = *parsed;
  const Kernels kernels = message.deterministic() ? Kernels::kShipped : Kernels::kBest;
  return submit(
      {message.session_id(), message.priority(), message.report(), OpIdOf(message, taken.get())},
      [&](SessionUse use) {
        return Keeping(parsed, message_bytes,
                       PrepareOps(std::move(use), message.ops(), taken, kernels));
      });
}

absl::Status Programs::SubmitPlan(const grpc::ByteBuffer& request, ExecuteCall::Submit submit) {
  constexpr size_t kMayHaveData = 64 << 10;  // less is as quickly copied as looked through
  std::shared_ptr<InlineData> taken;
  const size_t message_bytes = request.Length();  // parsing empties it
  if (message_bytes >= kMayHaveData) {
    taken = TakeRunPlanData(const_cast<grpc::ByteBuffer&>(request));
  }
  GEMMD_ASSIGN_OR_RETURN(const auto parsed, Parse(run_plan_requests_, request, taken.get()));
  const v1::RunPlanRequest& message = *parsed;
  return submit(
      {message.session_id(), message.priority(), message.report(), OpIdOf(message, taken.get())},
      [&](SessionUse use) {
        return Keeping(parsed, message_bytes, PreparePlan(std::move(use), message.run(), taken));
      });
}

absl::Status CreatePlan(Call& call, const v1::CreatePlanRequest& request, v1::Plan* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_ASSIGN_OR_RETURN(auto plan, PrepareNewPlan(*use, request));
  GEMMD_ASSIGN_OR_RETURN(auto handle, use->AddPlan(plan));
  response->set_plan_id(ToBytes(handle));
  response->set_device(plan->split != nullptr ? plan->split->DeviceNames() : plan->device->name());
  const std::shared_ptr<const kernels::Program> program = plan->program.Get();
  response->set_estimated_seconds(program->estimated_seconds());
  for (const auto& step : program->steps()) {
    v1::PlanStep* proto = response->add_steps();
    proto->set_op(std::string(step.op));
    proto->set_kernel(std::string(step.choice.kernel));
    proto->set_reason(ToProto(step.choice.reason));
    proto->set_estimated_seconds(step.choice.estimated_seconds);
  }
  return absl::OkStatus();
}

absl::Status DeletePlan(Call& call, const v1::DeletePlanRequest& request, v1::DeletePlanResponse*) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_ASSIGN_OR_RETURN(auto handle, ConvertHandle(request.plan_id(), "plan_id"));
  return use->DeletePlan(handle);
}

// The op of a grouped problem, which the request has in that field.
template <typename Message>
auto GroupedOpOf(const Message& message, std::string_view field, v1::ExplainResponse* response)
    -> decltype(kernels::OpOf(*Convert(message))) {
  GEMMD_ASSIGN_OR_RETURN(auto problem, Convert(message));
  auto op = kernels::OpOf(problem);
  if (!op.ok()) {
    return absl::Status(op.status().code(), absl::StrCat(Text(field), ": ", op.status().message()));
  }
  response->set_problem(kernels::ToString(problem));
  return op;
}

absl::StatusOr<std::vector<kernels::Candidate>> CandidatesFor(const v1::ExplainRequest& request,
                                                              kernels::Backend& backend,
                                                              v1::ExplainResponse* response) {
  if (request.has_problem() + request.has_grouped() + request.has_k_grouped() > 1) {
    return absl::InvalidArgumentError(
        "of problem, grouped and k_grouped several are given; leave all but one out");
  }
  if (request.has_k_grouped()) {
    GEMMD_ASSIGN_OR_RETURN(auto op, GroupedOpOf(request.k_grouped(), "k_grouped", response));
    return backend.ExplainKGrouped(op);
  }
  if (request.has_grouped()) {
    GEMMD_ASSIGN_OR_RETURN(auto op, GroupedOpOf(request.grouped(), "grouped", response));
    return backend.ExplainGrouped(op);
  }
  GEMMD_ASSIGN_OR_RETURN(auto problem, Convert(request.problem()));
  response->set_problem(kernels::ToString(problem));
  return backend.Explain(problem);
}

absl::Status Explain(Call& call, const v1::ExplainRequest& request, v1::ExplainResponse* response) {
  Device* device = call.state().devices().front().get();
  if (!request.device().empty()) {
    GEMMD_ASSIGN_OR_RETURN(device, call.state().FindDevice(request.device()));
  }
  response->set_device(device->name());
  GEMMD_ASSIGN_OR_RETURN(auto candidates, CandidatesFor(request, device->backend(), response));
  for (const auto& candidate : candidates) {
    v1::Candidate* proto = response->add_candidates();
    proto->set_kernel(std::string(candidate.kernel));
    proto->set_feasible(candidate.feasible);
    proto->set_why_not(candidate.why_not);
    proto->set_modelled_seconds(candidate.modelled_seconds);
    proto->set_measured_seconds(candidate.measured_seconds);
    proto->set_chosen(candidate.chosen);
    proto->set_tuned(candidate.tuned);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeComputeService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::ComputeService>>(context);
  const auto programs = std::make_shared<Programs>();  // of two handlers
  const auto serve = [programs](auto submit) {
    return [programs, submit](Method& method, grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer& request, grpc::ByteBuffer* response) {
      return ExecuteCall::Start(
          method, context,
          [&](const Call& call, ExecuteCall::Submit submitted) {
            const absl::Status present = call.CheckPresent(request);
            return present.ok() ? ((*programs).*submit)(request, submitted) : present;
          },
          response);
    };
  };
  rpcs->ServeBytes<v1::ExecuteRequest>(serve(&Programs::SubmitOps));
  rpcs->ServeBytes<v1::RunPlanRequest>(serve(&Programs::SubmitPlan));
  rpcs->ServeBidi<v1::QueueRequest, v1::QueueResponse>(
      [](auto&... call) { return QueueStream::Start(call...); });
  rpcs->Serve(CreatePlan);
  rpcs->Serve(DeletePlan);
  rpcs->Serve(Explain);
  return rpcs;
}

}  // namespace gemmd::server
