#include <cstdint>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

using grpc::StatusCode;

v1::Op Good(Prepared& p) {
  return MatmulOp(View(p.a, {4, 4}), View(p.b, {4, 4}), View(p.d, {4, 4}));
}

}  // namespace

grpc::Status RunPlan(Prepared& p, const std::vector<v1::Op>& ops,
                     const std::function<void(v1::PlanRun&)>& spoil) {
  v1::CreatePlanRequest create;
  create.set_session_id(p.session);
  for (const v1::Op& op : ops) *create.add_ops() = op;
  v1::Plan plan;
  grpc::ClientContext creating;
  grpc::Status status = p.wire.compute().CreatePlan(&creating, create, &plan);
  if (!status.ok()) return {StatusCode::UNKNOWN, "CreatePlan: " + status.error_message()};

  v1::RunPlanRequest run;
  run.set_session_id(p.session);
  run.mutable_run()->set_plan_id(plan.plan_id());
  spoil(*run.mutable_run());
  v1::ExecuteResponse response;
  grpc::ClientContext running;
  const grpc::Status result = p.wire.compute().RunPlan(&running, run, &response);

  v1::DeletePlanRequest drop;
  drop.set_session_id(p.session);
  drop.set_plan_id(plan.plan_id());
  v1::DeletePlanResponse dropped;
  grpc::ClientContext dropping;
  status = p.wire.compute().DeletePlan(&dropping, drop, &dropped);
  if (!status.ok()) return {StatusCode::UNKNOWN, "DeletePlan: " + status.error_message()};
  return result;
}

std::vector<BadInput> BadPrograms() {
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  return {
      {"NoOps",
       kInvalid,
       {"empty", "at least one"},
       [](auto& p) { return p.wire.Execute(p.session, {}); }},
      {"EmptyOp",
       kInvalid,
       {"ops[1]"},
       [](auto& p) {
         return p.wire.Execute(p.session, {Good(p), v1::Op()});
       }},
      // Views of stride 0: sixteen floats pose a problem of 2^55 multiplications.
      {"EndlessProgram",
       StatusCode::RESOURCE_EXHAUSTED,
       {"limit 1m", "in parts"},
       [](auto& p) {
         v1::Tensor a = View(p.a, {4, int64_t{1} << 50}), b = View(p.b, {4, int64_t{1} << 50});
         for (v1::Tensor* view : {&a, &b}) {
           view->add_strides(1);
           view->add_strides(0);
         }
         return p.wire.Execute(p.session, {MatmulOp(a, b, View(p.d, {4, 4}))});
       }},
      {"TooManyOps",
       StatusCode::RESOURCE_EXHAUSTED,
       {"9", "8"},
       [](auto& p) { return p.wire.Execute(p.session, std::vector<v1::Op>(9, Good(p))); }},
      // The first op is fine and must not have run: all or nothing.
      {"SecondOpIsWrong",
       kInvalid,
       {"op 1", "k=5"},
       [](auto& p) {
         return p.wire.Execute(p.session,
                               {FillOp(View(p.d, {4, 4}), 7),
                                MatmulOp(View(p.a, {4, 5}), View(p.b, {4, 4}), View(p.d, {4, 4}))});
       }},
      {"InlineDataTooShort",
       kInvalid,
       {"63", "64"},
       [](auto& p) {
         return p.wire.Execute(p.session, {WriteOp(View(p.a, {4, 4}), std::string(63, 'x'))});
       }},
      {"InlineDataTooLong",
       kInvalid,
       {"65", "64"},
       [](auto& p) {
         return p.wire.Execute(p.session, {WriteOp(View(p.a, {4, 4}), std::string(65, 'x'))});
       }},
      {"InlineDataBeyondTheLimit",
       StatusCode::RESOURCE_EXHAUSTED,
       {"65536"},
       [](auto& p) {
         const std::string big = p.wire.CreateBuffer(p.session, 70000);
         const grpc::Status status = p.wire.Execute(
             p.session, {WriteOp(View(big, {70000}, v1::DTYPE_I8), std::string(70000, 'x'))});
         v1::DeleteBuffersRequest drop;
         drop.set_session_id(p.session);
         drop.add_buffer_ids(big);
         v1::DeleteBuffersResponse dropped;
         grpc::ClientContext context;
         p.wire.buffers().DeleteBuffers(&context, drop, &dropped);
         return status;
       }},
      {"DeadSession",
       StatusCode::NOT_FOUND,
       {"session"},
       [](auto& p) {
         const std::string dead = p.wire.OpenSession();
         p.wire.CloseSession(dead);
         return p.wire.Execute(dead, {Good(p)});
       }},
      {"UnknownSession",
       StatusCode::NOT_FOUND,
       {"session"},
       [](auto& p) { return p.wire.Execute(std::string(16, 's'), {Good(p)}); }},
      {"AnotherSessionsBuffer",
       StatusCode::NOT_FOUND,
       {"buffer"},
       [](auto& p) {
         const std::string other = p.wire.OpenSession();
         const grpc::Status status = p.wire.Execute(other, {Good(p)});
         p.wire.CloseSession(other);
         return status;
       }},
      {"TooManySessions",
       StatusCode::RESOURCE_EXHAUSTED,
       {"4", "session"},
       [](auto& p) {
         std::vector<std::string> more;
         for (int i = 0; i < 3; ++i) more.push_back(p.wire.OpenSession());
         grpc::ClientContext context;
         v1::OpenSessionResponse response;
         const grpc::Status status =
             p.wire.sessions().OpenSession(&context, v1::OpenSessionRequest(), &response);
         for (const std::string& session : more) p.wire.CloseSession(session);
         return status;
       }},
      {"TtlBelowTheLimit",
       kInvalid,
       {"ttl"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::OpenSessionRequest request;
         request.mutable_ttl()->set_nanos(1);
         v1::OpenSessionResponse response;
         return p.wire.sessions().OpenSession(&context, request, &response);
       }},
      {"LabelTooLong",
       kInvalid,
       {"label", "64"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::OpenSessionRequest request;
         request.set_label(std::string(65, 'l'));
         v1::OpenSessionResponse response;
         return p.wire.sessions().OpenSession(&context, request, &response);
       }},
      {"LabelWithANewline",
       kInvalid,
       {"label"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::OpenSessionRequest request;
         request.set_label("forged\nline");
         v1::OpenSessionResponse response;
         return p.wire.sessions().OpenSession(&context, request, &response);
       }},
      {"OpIdTooLong",
       kInvalid,
       {"op_id", "32"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::ExecuteRequest request;
         request.set_session_id(p.session);
         *request.add_ops() = Good(p);
         request.set_op_id(std::string(33, 'i'));
         v1::ExecuteResponse response;
         return p.wire.compute().Execute(&context, request, &response);
       }},
      {"OpIdOfARunWithOtherInputs",
       kInvalid,
       {"op_id", "fresh"},
       [](auto& p) {
         grpc::Status status;
         RunPlan(p, {WriteOp(View(p.a, {4, 4}), std::string(64, 'x'))}, [&](v1::PlanRun& run) {
           v1::RunPlanRequest request;
           request.set_session_id(p.session);
           *request.mutable_run() = run;
           request.set_op_id("once");
           for (const char data : {'x', 'y'}) {
             *request.mutable_run()->mutable_inputs()->Add() = std::string(64, data);
             grpc::ClientContext context;
             v1::ExecuteResponse response;
             status = p.wire.compute().RunPlan(&context, request, &response);
             request.mutable_run()->clear_inputs();
           }
         });
         return status;
       }},
      {"UnknownPlan",
       StatusCode::NOT_FOUND,
       {"plan"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::RunPlanRequest request;
         request.set_session_id(p.session);
         request.mutable_run()->set_plan_id(std::string(16, 'p'));
         v1::ExecuteResponse response;
         return p.wire.compute().RunPlan(&context, request, &response);
       }},
      {"PlanInputOfAnotherLength",
       kInvalid,
       {"63", "64"},
       [](auto& p) {
         return RunPlan(p, {WriteOp(View(p.a, {4, 4}), std::string(64, 'x'))},
                        [](v1::PlanRun& run) { run.add_inputs(std::string(63, 'x')); });
       }},
      {"PlanInputsOfAnotherNumber",
       kInvalid,
       {"2", "1"},
       [](auto& p) {
         return RunPlan(p, {WriteOp(View(p.a, {4, 4}), std::string(64, 'x'))},
                        [](v1::PlanRun& run) {
                          run.add_inputs(std::string(64, 'x'));
                          run.add_inputs(std::string(64, 'x'));
                        });
       }},
      {"RebindingOntoAnotherOperand",
       kInvalid,
       {"place of buffers", "different"},
       [](auto& p) {
         return RunPlan(p, {Good(p)}, [&](v1::PlanRun& run) {
           v1::Rebinding& rebind = *run.add_rebind();
           rebind.set_from_buffer_id(p.d);
           rebind.set_to_buffer_id(p.a);
         });
       }},
      {"RebindingWhatThePlanDoesNotUse",
       kInvalid,
       {"rebind"},
       [](auto& p) {
         return RunPlan(p, {FillOp(View(p.d, {4, 4}), 1)}, [&](v1::PlanRun& run) {
           v1::Rebinding& rebind = *run.add_rebind();
           rebind.set_from_buffer_id(p.a);
           rebind.set_to_buffer_id(p.b);
         });
       }},
      {"ExplainOfNothing",
       kInvalid,
       {"m"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::ExplainResponse response;
         return p.wire.compute().Explain(&context, v1::ExplainRequest(), &response);
       }},
      {"ExplainOnAnUnknownDevice",
       StatusCode::NOT_FOUND,
       {"cuda:9"},
       [](auto& p) {
         grpc::ClientContext context;
         v1::ExplainRequest request;
         v1::MatmulProblem& problem = *request.mutable_problem();
         problem.set_m(1);
         problem.set_n(1);
         problem.set_k(1);
         problem.set_operand_dtype(v1::DTYPE_F32);
         problem.set_output_dtype(v1::DTYPE_F32);
         request.set_device("cuda:9");
         v1::ExplainResponse response;
         return p.wire.compute().Explain(&context, request, &response);
       }},
  };
}

}  // namespace gemmd::e2e
