// Running a plan: the inputs that a run brings and what its Reads return go through memory shared
// with the daemon where that is worth it and there is some, else in the messages.

#ifndef GEMMD_CLIENT_CPP_RUN_PLAN_H_
#define GEMMD_CLIENT_CPP_RUN_PLAN_H_

#include "absl/status/statusor.h"
#include "client/cpp/execute.h"
#include "client/cpp/plan.h"

namespace gemmd::client {

absl::StatusOr<Result> RunPlan(const Plan::State& plan, const PlanArgs& args,
                               const ExecuteOptions& options);
void RunPlanAsync(const Plan::State& plan, const PlanArgs& args, const ExecuteOptions& options,
                  ExecuteCallback done);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_RUN_PLAN_H_
