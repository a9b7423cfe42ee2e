// CreatePlan, RunPlan, DeletePlan, Explain: a plan made from any ops, run with any rebinding.

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scripts.pb.h"
#include "tests/fuzz/served.h"

GEMMD_PROTO_FUZZER(gemmd::fuzz::PlanScript, input) {
  gemmd::fuzz::Served& served = gemmd::fuzz::Served::Get();
  gemmd::fuzz::PlanScript script = input;
  served.Bind(script);
  std::string plan_id;
  if (script.has_create()) {
    gemmd::v1::Plan plan;
    const grpc::Status status =
        served.compute().CreatePlan(served.Context().get(), script.create(), &plan);
    served.Judge(status);
    if (status.ok()) plan_id = plan.plan_id();
  }
  for (gemmd::v1::RunPlanRequest& run : *script.mutable_runs()) {
    if (run.run().plan_id() == "new") run.mutable_run()->set_plan_id(plan_id);
    gemmd::v1::ExecuteResponse response;
    served.Judge(served.compute().RunPlan(served.Context().get(), run, &response));
  }
  if (script.has_explain()) {
    gemmd::v1::ExplainResponse response;
    served.Judge(served.compute().Explain(served.Context().get(), script.explain(), &response));
  }
  gemmd::v1::DeletePlanResponse deleted;
  if (script.has_remove()) {
    served.Judge(served.compute().DeletePlan(served.Context().get(), script.remove(), &deleted));
  }
  if (!plan_id.empty()) {
    gemmd::v1::DeletePlanRequest request;
    request.set_session_id(served.session());
    request.set_plan_id(plan_id);
    served.Judge(served.compute().DeletePlan(served.Context().get(), request, &deleted));
  }
  served.Check();
}
